/* The C interface of worker/tarn.h, in libtarn.so, for other languages. python/tarn/library.py uses it.

     tarn_client* ps;
     tarn_table* users;
     tarn_future* rows;
     const float* values;
     if (tarn_connect("runs/mine", NULL, &ps) != 0) return complain(tarn_last_error());
     if (tarn_create_table(ps, "users", "dim = 16\n[optimizer]\nkind = 'adagrad'", &users) != 0) ...
     if (tarn_pull(ps, users, keys, n, NULL, &rows) != 0 || tarn_rows(rows, INFINITY, &values, NULL) != 0) ...
     tarn_push(ps, users, keys, n, gradients, NULL);      without a future: acknowledged in the background
     tarn_tick(ps, NULL);
     tarn_future_free(rows); tarn_table_free(users); tarn_close(ps);

   worker/tarn.h describes the functions, what they wait for and their order of execution. Functions that return an int,
   except tarn_ready, return 0 or one of the codes below. After an error tarn_last_error() returns the message, and
   output pointers are unchanged. The functions throw no C++ exceptions; if an allocation fails they return
   TARN_NO_MEMORY.

   A function with a `future` starts a request, whose outcome tarn_wait and tarn_rows return. Pulls report a key that is
   too large in this way, too. Pushes, tarn_assign and tarn_delete return TARN_INVALID_ARGUMENT themselves if their
   arguments are invalid, and then make no future. Only a row that was not pulled, which delay-compensated rules need,
   may be noticed later: then the future of the push fails, or without a future a warning is logged.

   A null pointer for a required argument is TARN_INVALID_ARGUMENT, and the message names the argument; functions that
   return no code return 0, null or an empty string. These may be null: `options`, arrays without elements, `future`
   except in pulls and checkpoint requests (the outcome is not wanted), and arguments described as optional below.

   Any thread may call any function, also concurrently with the same client, table, plan or future. Only the ..._free
   functions and tarn_close must be the last call with the object that they free. They accept null. Futures, tables and
   plans may be used after tarn_close. */
#ifndef TARN_WORKER_TARN_C_H_
#define TARN_WORKER_TARN_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names as C has them. NOLINTBEGIN(modernize-use-using,readability-identifier-naming) */
#define TARN_C_API __attribute__((visibility("default")))

/* The version of this header. It must equal that of the library, tarn_c_version(). */
#define TARN_C_VERSION 7
TARN_C_API uint32_t tarn_c_version(void);

/* Codes that a program may want to handle. Other errors are other positive numbers (core/error.h). */
enum {
  TARN_OK = 0,
  TARN_INVALID_ARGUMENT = 1,
  TARN_ALREADY_EXISTS = 5,
  TARN_FENCED = 7,       /* the fleet has declared this worker dead: connect again */
  TARN_UNAVAILABLE = 12, /* the fleet cannot be reached */
  TARN_TIMEOUT = 13,
  TARN_CANCELLED = 17, /* the job has ended, or the client is closed */
  TARN_NO_MEMORY = 255,
};

typedef struct tarn_client tarn_client;
typedef struct tarn_table tarn_table;
typedef struct tarn_plan tarn_plan;
typedef struct tarn_future tarn_future;

/* The message of the last error on this thread, in UTF-8; empty before the first. Valid until the next error. */
TARN_C_API const char* tarn_last_error(void);

/* --- The fleet -------------------------------------------------------------------------------------------------- */

/* Zeros are the defaults, in all option structs. Set `size`, and the fields that differ. */
typedef struct {
  size_t size;            /* sizeof(tarn_options) */
  const char* keys;       /* key file of the fleet; null: connections without encryption */
  double timeout_seconds; /* to wait for a run's address, for the fleet, and in tarn_open_table, each;
                             0: 60; may be infinite */
  uint32_t rank_plus_1;   /* 0: the scheduler chooses the rank */
  int insecure;           /* allow TCP without keys */
  int no_shm;             /* do not use shared memory with servers on this host */
} tarn_options;

/* Connects to a fleet. `scheduler`: the run directory, on the same machine, or tcp://HOST:PORT, with keys. */
TARN_C_API int tarn_connect(const char* scheduler, const tarn_options* options, tarn_client** client);
/* Waits for all acknowledgements and leaves the fleet. Pulls for clocks that this worker has not reached fail with
   TARN_CANCELLED. Afterwards tarn_close is the only function that may be called with this client. */
TARN_C_API int tarn_leave(tarn_client* client);
/* Ends the client without leaving: calls in progress, in other threads, and all later ones fail with TARN_CANCELLED.
   The fleet counts it as dead after lease_seconds. Call tarn_close when they have returned. */
TARN_C_API void tarn_cancel(tarn_client* client);
/* Leaves first unless tarn_leave was called, but waits at most 2 seconds, and saves no state of the program. */
TARN_C_API void tarn_close(tarn_client* client);

TARN_C_API uint32_t tarn_rank(const tarn_client* client);
TARN_C_API uint64_t tarn_clock(const tarn_client* client);
/* The job as resolved TOML. Valid until tarn_close. */
TARN_C_API const char* tarn_job_text(const tarn_client* client);

/* Waits until the table exists, at most for the timeout. */
TARN_C_API int tarn_open_table(tarn_client* client, const char* name, tarn_table** table);
/* Creates the table if it does not exist. `description` is TOML (core/job/table_text.h). Without [optimizer] in it the
   table has the job's: that of embeddings if it is sparse, of dense layers if it is dense. */
TARN_C_API int tarn_create_table(tarn_client* client, const char* name, const char* description, tarn_table** table);
TARN_C_API uint32_t tarn_table_dim(const tarn_table* table);
TARN_C_API uint64_t tarn_table_rows(const tarn_table* table); /* 0: sparse */
TARN_C_API void tarn_table_free(tarn_table* table);

/* --- Pulls ------------------------------------------------------------------------------------------------------ */

typedef struct {
  size_t size; /* sizeof(tarn_pull_options) */
  /* Buffer for all rows: n x dim floats (tarn_pull_plan: tarn_plan_size x dim). It must exist until the future is ready
     or freed; it is not written to afterwards. Null: the future allocates the memory. */
  float* out;
  int priority;
  uint64_t use_clock_plus_1; /* 1 + the clock at which the rows will be used; 0: the current clock */
} tarn_pull_options;

/* `keys`: n keys, copied. */
TARN_C_API int tarn_pull(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                         const tarn_pull_options* options, tarn_future** future);

/* Rows of several tables with one future; options->out is not used. */
typedef struct {
  const tarn_table* table;
  const uint64_t* keys;
  size_t n;
  float* out; /* see tarn_pull_options.out */
} tarn_table_pull;
TARN_C_API int tarn_pull_many(tarn_client* client, const tarn_table_pull* pulls, size_t count,
                              const tarn_pull_options* options, tarn_future** future);

TARN_C_API int tarn_prefetch(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n);

/* --- Pushes ----------------------------------------------------------------------------------------------------- */

/* `keys`: n keys, `gradients`: n x dim floats; both are copied. TARN_INVALID_ARGUMENT if a gradient is infinite or NaN,
   or a key of a dense table is too large; nothing is sent then. */
TARN_C_API int tarn_push(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                         const float* gradients, tarn_future** future);

/* Sets the rows of n keys to `values`, n x dim floats; of a repeated key the last row counts. See tarn::Client::Assign
   in tarn.h. TARN_INVALID_ARGUMENT as for tarn_push. */
TARN_C_API int tarn_assign(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                           const float* values, tarn_future** future);

/* Deletes the rows of n keys of a sparse table. From then on they have their initial values.
   TARN_INVALID_ARGUMENT: the table is dense. */
TARN_C_API int tarn_delete(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                           tarn_future** future);

/* A push to several tables. Nothing is sent if the keys or gradients of one of them are invalid. */
typedef struct {
  const tarn_table* table;
  const uint64_t* keys;
  size_t n;
  const float* gradients;
} tarn_table_push;
TARN_C_API int tarn_push_many(tarn_client* client, const tarn_table_push* pushes, size_t count, tarn_future** future);

/* --- Plans: keys that are used several times -------------------------------------------------------------------- */

TARN_C_API int tarn_plan_make(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                              tarn_plan** plan);
/* Makes the plans of several tables. `limit`: all keys must be below it; 0: any keys. `plans`: count handles; `sizes`:
   count numbers, tarn_plan_size of each. `index`: for each key of all requests, one after the other, its index in
   tarn_plan_keys of its plan; may be null. If a request is invalid, no plan is made. */
typedef struct {
  const tarn_table* table;
  const uint64_t* keys;
  size_t n;
  uint64_t limit;
} tarn_plan_request;
TARN_C_API int tarn_plan_make_many(tarn_client* client, const tarn_plan_request* requests, size_t count,
                                   tarn_plan** plans, size_t* sizes, int64_t* index);
/* The number of distinct keys. */
TARN_C_API size_t tarn_plan_size(const tarn_plan* plan);
/* Each distinct key, in the order of the rows of a pull and the gradients of a push. Valid as long as the plan. */
TARN_C_API const uint64_t* tarn_plan_keys(const tarn_plan* plan);
/* For each of the n keys its index in tarn_plan_keys. Valid as long as the plan. */
TARN_C_API const uint32_t* tarn_plan_index(const tarn_plan* plan);
TARN_C_API void tarn_plan_free(tarn_plan* plan);

/* The rows have tarn_plan_size x dim floats. */
TARN_C_API int tarn_pull_plan(tarn_client* client, const tarn_plan* plan, const tarn_pull_options* options,
                              tarn_future** future);

/* `gradients`: tarn_plan_size x dim floats. With `release` they are not copied: they must be aligned to 8 bytes and
   remain unchanged until release(context) is called, which happens exactly once, on any thread, also if the push fails.
   `release` must not call tarn. Without `release` they are copied. `pulled_clock_plus_1`: 1 + the clock for which the
   rows were pulled; 0: the current clock. */
TARN_C_API int tarn_push_plan(tarn_client* client, const tarn_plan* plan, const float* gradients,
                              void (*release)(void* context), void* context, uint64_t pulled_clock_plus_1,
                              tarn_future** future);

/* Pulls and pushes of several plans with one future. options->out is not used. Nothing is pushed if the gradients of
   one of the plans are invalid. The gradients are copied. `pulled_clock_plus_1`: see tarn_push_plan. */
typedef struct {
  const tarn_plan* plan;
  float* out; /* see tarn_pull_options.out */
} tarn_plan_pull;
typedef struct {
  const tarn_plan* plan;
  const float* gradients; /* tarn_plan_size x dim */
} tarn_plan_push;
TARN_C_API int tarn_pull_plans(tarn_client* client, const tarn_plan_pull* pulls, size_t count,
                               const tarn_pull_options* options, tarn_future** future);
TARN_C_API int tarn_push_plans(tarn_client* client, const tarn_plan_push* pushes, size_t count,
                               uint64_t pulled_clock_plus_1, tarn_future** future);

/* --- Clocks ----------------------------------------------------------------------------------------------------- */

TARN_C_API int tarn_tick(tarn_client* client, tarn_future** future);
/* The same for a program that reads data under leases: the first `rows` rows of lease `lease` are trained. */
TARN_C_API int tarn_tick_at(tarn_client* client, uint64_t lease, uint64_t rows, tarn_future** future);
/* Ticks to `clock`. TARN_INVALID_ARGUMENT: more than 2^30 clocks ahead. */
TARN_C_API int tarn_tick_to(tarn_client* client, uint64_t clock, tarn_future** future);
TARN_C_API int tarn_barrier(tarn_client* client);

/* Requests a checkpoint of the fleet. The future is ready when the checkpoint is complete or has failed. In bsp and ssp
   all workers, including this one, must continue to tick meanwhile. `future` must not be null. */
TARN_C_API int tarn_request_checkpoint(tarn_client* client, tarn_future** future);

/* The error with which every request now fails, because the client has ended; TARN_OK before. Does not block. */
TARN_C_API int tarn_ended(tarn_client* client);

/* State of the program in checkpoints (Client::KeepState). `save` sets *bytes and *n, and returns 0. The bytes must
   remain valid until the function of this library that called `save` returns. `save` is called on the thread of that
   call. If it returns another value, the client ends. */
TARN_C_API int tarn_keep_state(tarn_client* client, int (*save)(void* context, const void** bytes, size_t* n),
                               void* context);
/* Saves the state if a checkpoint needs it (Client::SaveState). */
TARN_C_API int tarn_save_state(tarn_client* client);
/* The state of a rank in the checkpoint from which the run continues; *n = 0: none. The bytes are valid until the next
   call of this function with the same client, in any thread, or tarn_close. */
TARN_C_API int tarn_saved_state(tarn_client* client, uint32_t rank, const void** bytes, size_t* n);

/* Reports n figures of the program (Client::Report): names[i] has the value values[i]. */
TARN_C_API int tarn_report(tarn_client* client, const char* const* names, const double* values, size_t n);

/* --- Leases of data --------------------------------------------------------------------------------------------- */

enum { TARN_TRAIN = 0, TARN_VALIDATE = 1, TARN_TEST = 2 };
typedef struct {
  uint64_t id;
  int purpose; /* TARN_TRAIN, ... */
  uint32_t epoch;
  uint64_t first_row, rows;
  uint64_t skip_rows;  /* rows at the beginning that are already trained */
  uint64_t batch_rows; /* of a batch, at most; the clocks of an epoch are counted in batches of this size */
} tarn_lease;

/* A completed lease; for training, one whose last batch is followed by an acknowledged tick. Reports the quality of the
   predictions made before each update. */
typedef struct {
  uint64_t lease;
  uint64_t rows;
  double loss_sum;
  const float* logits;      /* of each row, with `positives`, for the area under the curve; null for a classifier */
  const uint8_t* positives; /* the label of each row, 0 or 1 */
  uint64_t correct;         /* for a classifier: number of rows with the right class */
} tarn_lease_report;

typedef struct {
  size_t granted;   /* number of leases written to the array */
  int finished;     /* there is no more work: leave */
  uint64_t tick_to; /* if granted = 0 and not finished: tarn_tick_to this clock and request again */
} tarn_lease_answer;

/* Requests up to `want` leases, written to `leases`. `data_rows`: rows of the training, validation and test set. */
TARN_C_API int tarn_request_leases(tarn_client* client, const uint64_t data_rows[3], const tarn_lease_report* done,
                                   size_t done_count, tarn_lease* leases, size_t want, tarn_lease_answer* answer);

/* --- Futures ---------------------------------------------------------------------------------------------------- */

/* 1: the outcome is known; 0: not yet. */
TARN_C_API int tarn_ready(const tarn_future* future);
/* Waits at most `seconds`, which may be infinite. After TARN_TIMEOUT the caller may wait again. */
TARN_C_API int tarn_wait(const tarn_future* future, double seconds);
/* For pulls: waits likewise and returns the rows in the order of the keys. They are valid as long as the future, unless
   they are in the caller's buffer. `staleness`: by how many clocks the rows may be stale; may be null. */
TARN_C_API int tarn_rows(const tarn_future* future, double seconds, const float** rows, uint64_t* staleness);
/* The same for the `which`-th table of tarn_pull_many or tarn_pull_plans. */
TARN_C_API int tarn_rows_of(const tarn_future* future, size_t which, double seconds, const float** rows,
                            uint64_t* staleness);
TARN_C_API void tarn_future_free(tarn_future* future);

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* TARN_WORKER_TARN_C_H_ */

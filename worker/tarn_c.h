/* tarn for other languages: worker/tarn.h as C functions, in libtarn.so. python/tarn/client.py is made of it.

     tarn_client* ps;
     tarn_table* users;
     tarn_future* rows;
     const float* values;
     if (tarn_connect("runs/mine", NULL, &ps) != 0) return complain(tarn_last_error());
     if (tarn_create_table(ps, "users", "dim = 16\n[optimizer]\nkind = 'adagrad'", &users) != 0) ...
     if (tarn_pull(ps, users, keys, n, NULL, &rows) != 0 || tarn_rows(rows, INFINITY, &values, NULL) != 0) ...
     tarn_push(ps, users, keys, n, gradients, NULL);      the future is not wanted: acknowledged in the background
     tarn_tick(ps, NULL);
     tarn_future_free(rows); tarn_table_free(users); tarn_close(ps);

   worker/tarn.h says what the functions do, what they wait for and in which order they are carried out. Those that
   return an int return 0, or one of the codes below, and then tarn_last_error() says why; the pointers that they would
   have set are untouched. No C++ exception leaves them: without memory they return TARN_NO_MEMORY.

   A null pointer where one is needed is TARN_INVALID_ARGUMENT, and the error names it; functions without a code return
   0 or an empty string. Null may be: `options`, arrays of no elements, `future` of everything but a pull (nobody asks
   for the outcome), and what is said to be optional below.

   Threads: any, also at the same time with the same client, table, plan or future; only the ..._free and tarn_close
   functions must be the last to use what they free. A null pointer may be freed. Futures, tables and plans outlive the
   client. */
#ifndef TARN_WORKER_TARN_C_H_
#define TARN_WORKER_TARN_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_C_API __attribute__((visibility("default")))

/* Of this header. tarn_c_version() is that of the library: the two must be the same. */
#define TARN_C_VERSION 2
TARN_C_API uint32_t tarn_c_version(void);

/* Those that a program may want to tell apart; others are other positive numbers (core/error.h). */
enum {
  TARN_OK = 0,
  TARN_INVALID_ARGUMENT = 1,
  TARN_ALREADY_EXISTS = 5,
  TARN_FENCED = 7,       /* the fleet has declared this worker dead: connect anew */
  TARN_UNAVAILABLE = 12, /* the fleet is gone */
  TARN_TIMEOUT = 13,
  TARN_CANCELLED = 17, /* the job is over, or the client is closed */
  TARN_NO_MEMORY = 255,
};

typedef struct tarn_client tarn_client;
typedef struct tarn_table tarn_table;
typedef struct tarn_plan tarn_plan;
typedef struct tarn_future tarn_future;

/* Why the last call of this thread that failed did so, UTF-8; empty before the first. Until its next failure. */
TARN_C_API const char* tarn_last_error(void);

/* --- The fleet -------------------------------------------------------------------------------------------------- */

/* Zeros are the defaults, here and in other options: set what differs, and `size`. */
typedef struct {
  size_t size;            /* sizeof(tarn_options) */
  const char* keys;       /* the fleet's key file; null: plain connections */
  double timeout_seconds; /* until the fleet is complete, and for tarn_open_table; 0: 60; may be infinite */
  uint32_t rank_plus_1;   /* 0: the scheduler chooses the rank */
  int insecure;           /* TCP without keys */
  int no_shm;             /* no memory shared with servers of this host */
} tarn_options;

/* `scheduler`: the folder of the run, on this machine, or tcp://HOST:PORT, with keys. */
TARN_C_API int tarn_connect(const char* scheduler, const tarn_options* options, tarn_client** client);
/* Everything acknowledged, and this worker gone; then only tarn_close is of use. */
TARN_C_API int tarn_leave(tarn_client* client);
/* Leaves first, if nobody has, but waits at most 2 seconds for it. */
TARN_C_API void tarn_close(tarn_client* client);

TARN_C_API uint32_t tarn_rank(const tarn_client* client);
TARN_C_API uint64_t tarn_clock(const tarn_client* client);
/* The job as resolved TOML; as long as the client. */
TARN_C_API const char* tarn_job_text(const tarn_client* client);

/* A table that somebody creates within the timeout. */
TARN_C_API int tarn_open_table(tarn_client* client, const char* name, tarn_table** table);
/* Creates it if it is not there. `description` is TOML (core/job/table_text.h). */
TARN_C_API int tarn_create_table(tarn_client* client, const char* name, const char* description, tarn_table** table);
TARN_C_API uint32_t tarn_table_dim(const tarn_table* table);
TARN_C_API uint64_t tarn_table_rows(const tarn_table* table); /* 0: sparse */
TARN_C_API void tarn_table_free(tarn_table* table);

/* --- Pulls ------------------------------------------------------------------------------------------------------ */

typedef struct {
  size_t size; /* sizeof(tarn_pull_options) */
  /* Where the rows go: room for all of them. It must stay until the future is ready or freed: nothing is written to it
     afterwards. Null: memory of the future. */
  float* out;
  int priority;
  uint64_t use_clock_plus_1; /* the clock at which the rows will be used; 0: the client's */
} tarn_pull_options;

/* `keys`: n of them, copied. */
TARN_C_API int tarn_pull(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                         const tarn_pull_options* options, tarn_future** future);

/* Rows of several tables with one future; options->out is not used. */
typedef struct {
  const tarn_table* table;
  const uint64_t* keys;
  size_t n;
  float* out; /* as tarn_pull_options.out */
} tarn_table_pull;
TARN_C_API int tarn_pull_many(tarn_client* client, const tarn_table_pull* pulls, size_t count,
                              const tarn_pull_options* options, tarn_future** future);

TARN_C_API int tarn_prefetch(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n);

/* --- Pushes ----------------------------------------------------------------------------------------------------- */

/* `keys`: n of them, `gradients`: n x dim; both copied. TARN_INVALID_ARGUMENT, and nothing is sent, if a gradient is
   infinite or NaN, or a key of a dense table too large. */
TARN_C_API int tarn_push(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                         const float* gradients, tarn_future** future);

/* Of several tables; nothing is sent if one of them is refused. */
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
/* How many different keys there are. */
TARN_C_API size_t tarn_plan_size(const tarn_plan* plan);
/* Each key once, in the order of the rows of a pull and the gradients of a push. As long as the plan. */
TARN_C_API const uint64_t* tarn_plan_keys(const tarn_plan* plan);
/* For each of the n keys: its place among tarn_plan_keys. As long as the plan. */
TARN_C_API const uint32_t* tarn_plan_index(const tarn_plan* plan);
TARN_C_API void tarn_plan_free(tarn_plan* plan);

/* tarn_plan_size x dim floats. */
TARN_C_API int tarn_pull_plan(tarn_client* client, const tarn_plan* plan, const tarn_pull_options* options,
                              tarn_future** future);

/* `gradients`: tarn_plan_size x dim, aligned to 8 bytes. With `release` they are not copied: they must stay, unchanged,
   until release(context) is called, which happens once, by any thread, also if the push fails; it must not call tarn.
   Without, they are copied. `pulled_clock_plus_1`: the clock for which the rows were pulled; 0: the client's. */
TARN_C_API int tarn_push_plan(tarn_client* client, const tarn_plan* plan, const float* gradients,
                              void (*release)(void* context), void* context, uint64_t pulled_clock_plus_1,
                              tarn_future** future);

/* --- Clocks ----------------------------------------------------------------------------------------------------- */

TARN_C_API int tarn_tick(tarn_client* client, tarn_future** future);
/* The same for a program that reads data under leases: in lease `lease`, the first `rows` of its rows are trained. */
TARN_C_API int tarn_tick_at(tarn_client* client, uint64_t lease, uint64_t rows, tarn_future** future);
/* Ahead to `clock`. */
TARN_C_API int tarn_tick_to(tarn_client* client, uint64_t clock, tarn_future** future);
TARN_C_API int tarn_barrier(tarn_client* client);

/* Has the fleet write a checkpoint. Ready once it is whole, or with the reason why there is none. In bsp and ssp the
   workers have to tick on meanwhile, this one too. `future` may not be null. */
TARN_C_API int tarn_request_checkpoint(tarn_client* client, tarn_future** future);

/* --- Leases of data --------------------------------------------------------------------------------------------- */

enum { TARN_TRAIN = 0, TARN_VALIDATE = 1, TARN_TEST = 2 };
typedef struct {
  uint64_t id;
  int purpose; /* TARN_TRAIN, ... */
  uint32_t epoch;
  uint64_t first_row, rows;
  uint64_t skip_rows; /* of them are trained already: begin behind */
} tarn_lease;

/* A lease that is done: of training once the tick behind its last batch is acknowledged. What is reported is the
   quality of its predictions, before each update. */
typedef struct {
  uint64_t lease;
  uint64_t rows;
  double loss_sum;
  const float* logits;      /* of each row, with `positives`, for the area under the curve; null: of a classifier */
  const uint8_t* positives; /* the label of each row, 0 or 1 */
  uint64_t correct;         /* of a classifier: rows whose best class was right */
} tarn_lease_report;

typedef struct {
  size_t granted;   /* leases that were written to the array */
  int finished;     /* there is no more work: leave */
  uint64_t tick_to; /* with granted = 0 and not finished: tarn_tick_to this clock, and ask again */
} tarn_lease_answer;

/* Asks for up to `want` leases, written to `leases`. `data_rows`: of the training, validation and test set. */
TARN_C_API int tarn_request_leases(tarn_client* client, const uint64_t data_rows[3], const tarn_lease_report* done,
                                   size_t done_count, tarn_lease* leases, size_t want, tarn_lease_answer* answer);

/* --- Futures ---------------------------------------------------------------------------------------------------- */

/* 1 or 0. */
TARN_C_API int tarn_ready(const tarn_future* future);
/* Waits at most `seconds`, which may be infinite; after TARN_TIMEOUT one may wait again. */
TARN_C_API int tarn_wait(const tarn_future* future, double seconds);
/* Waits likewise; floats in the order of the keys, which live as long as the future unless they are in memory of the
   caller. Of a pull alone. `staleness` may be null: how many clocks the rows may be behind. */
TARN_C_API int tarn_rows(const tarn_future* future, double seconds, const float** rows, uint64_t* staleness);
/* The same of the `which`-th table of tarn_pull_many. */
TARN_C_API int tarn_rows_of(const tarn_future* future, size_t which, double seconds, const float** rows,
                            uint64_t* staleness);
TARN_C_API void tarn_future_free(tarn_future* future);

#ifdef __cplusplus
}
#endif

#endif /* TARN_WORKER_TARN_C_H_ */

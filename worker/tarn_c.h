/* tarn for other languages: worker/tarn.h as C functions, in libtarn.so. python/tarn/client.py is made of it.

     tarn_client* ps;
     tarn_table* users;
     tarn_future* rows;
     const float* values;
     if (tarn_connect("runs/mine", NULL, &ps) != 0) return complain(tarn_last_error());
     if (tarn_create_table(ps, "users", "dim = 16\n[optimizer]\nkind = 'adagrad'", &users) != 0) ...
     if (tarn_pull(ps, users, keys, n, 0, &rows) != 0 || tarn_rows(rows, INFINITY, &values, NULL) != 0) ...
     tarn_push(ps, users, keys, n, gradients, NULL);      the future is not wanted: acknowledged in the background
     tarn_tick(ps, NULL);
     tarn_future_free(rows); tarn_table_free(users); tarn_close(ps);

   What the functions do, what they wait for and in which order they are carried out, worker/tarn.h says. Those that
   return an int return 0, or one of the codes below, and then tarn_last_error() says why; the pointers that they would
   have set are untouched. No C++ exception leaves them: without memory they return TARN_NO_MEMORY.

   A null pointer where one is needed is TARN_INVALID_ARGUMENT, and the error names it; functions without a code return
   0 or an empty string. Null may be: `options`, `keys` and `gradients` with n = 0, and what is said to be optional
   below.

   Threads: any, also at the same time with the same client, table or future; only the ..._free and tarn_close functions
   want to be the last to use what they free. A null pointer may be freed. Futures and tables outlive the client. */
#ifndef TARN_WORKER_TARN_C_H_
#define TARN_WORKER_TARN_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_C_API __attribute__((visibility("default")))

/* Of this header. tarn_c_version() is that of the library: the two must be the same. */
#define TARN_C_VERSION 1
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
typedef struct tarn_future tarn_future;

/* Why the last call of this thread that failed did so, UTF-8; empty before the first. Until its next failure. */
TARN_C_API const char* tarn_last_error(void);

/* Zeros are the defaults: set what differs, and `size`. */
typedef struct {
  size_t size;            /* sizeof(tarn_options) */
  const char* keys;       /* the fleet's key file; null: plain connections */
  double timeout_seconds; /* until the fleet is complete, and for tarn_open_table; 0: 60; may be infinite */
  uint32_t rank_plus_1;   /* 0: the scheduler chooses the rank */
  int insecure;           /* TCP without keys */
  int no_shm;             /* no memory shared with servers of this host */
} tarn_options;

/* `scheduler`: the folder of the run, on this machine, or tcp://HOST:PORT, with keys. `options` may be null. */
TARN_C_API int tarn_connect(const char* scheduler, const tarn_options* options, tarn_client** client);
/* Everything acknowledged, and this worker gone; then only tarn_close is of use. */
TARN_C_API int tarn_leave(tarn_client* client);
/* Leaves first, if nobody has, but waits only a moment for it. */
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

/* `keys`: n of them, copied; `gradients`: n x dim, copied. A null `future`: nobody will ask for the outcome. tarn_push
   returns TARN_INVALID_ARGUMENT, and sends nothing, if a gradient is infinite or NaN, or a key of a dense table too
   large. */
TARN_C_API int tarn_pull(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n, int priority,
                         tarn_future** future);
TARN_C_API int tarn_prefetch(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n);
TARN_C_API int tarn_push(tarn_client* client, const tarn_table* table, const uint64_t* keys, size_t n,
                         const float* gradients, tarn_future** future);
TARN_C_API int tarn_tick(tarn_client* client, tarn_future** future);
TARN_C_API int tarn_barrier(tarn_client* client);

/* 1 or 0. */
TARN_C_API int tarn_ready(const tarn_future* future);
/* Waits at most `seconds`, which may be infinite; after TARN_TIMEOUT one may wait again. */
TARN_C_API int tarn_wait(const tarn_future* future, double seconds);
/* Waits likewise; n x dim floats in the order of the keys, which live as long as the future. Of a pull alone.
   `staleness` may be null: how many clocks the rows may be behind. */
TARN_C_API int tarn_rows(const tarn_future* future, double seconds, const float** rows, uint64_t* staleness);
TARN_C_API void tarn_future_free(tarn_future* future);

#ifdef __cplusplus
}
#endif

#endif /* TARN_WORKER_TARN_C_H_ */

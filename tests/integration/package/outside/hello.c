/* What examples/cpp/hello.cc does, in C: learns x[k] = k, and prints it. */
#include <math.h>
#include <stdio.h>

#include "worker/tarn_c.h"

enum { CLOCKS = 50, KEYS = 6, DIM = 2 };

static int complain(void) {
  fprintf(stderr, "hello_c: %s\n", tarn_last_error());
  return 1;
}

int main(int argc, char** argv) {
  const uint64_t keys[KEYS] = {1, 2, 3, 5, 8, 13};
  float gradients[KEYS * DIM];
  const float* values = NULL;
  tarn_client* ps = NULL;
  tarn_table* table = NULL;
  tarn_future* rows = NULL;
  int clock, i;
  if (argc != 3 || tarn_c_version() != TARN_C_VERSION) return 2;
  if (tarn_connect(argv[2], NULL, &ps) != TARN_OK) return complain();
  if (tarn_create_table(ps, "hello", "dim = 2\n[optimizer]\nkind = 'sgd'\nlearning_rate = 0.25", &table) != TARN_OK)
    return complain();
  for (clock = 0; clock <= CLOCKS; ++clock) {
    if (tarn_pull(ps, table, keys, KEYS, 0, &rows) != TARN_OK) return complain();
    if (tarn_rows(rows, INFINITY, &values, NULL) != TARN_OK) return complain();
    for (i = 0; i < KEYS * DIM; ++i) gradients[i] = values[i] - (float)keys[i / DIM];
    if (clock == CLOCKS)
      for (i = 0; i < KEYS; ++i) printf("x[%2d] = %7.4f\n", (int)keys[i], (double)values[i * DIM]);
    tarn_future_free(rows);
    if (clock == CLOCKS) break;
    if (tarn_push(ps, table, keys, KEYS, gradients, NULL) != TARN_OK || tarn_tick(ps, NULL) != TARN_OK) return complain();
  }
  tarn_table_free(table);
  if (tarn_leave(ps) != TARN_OK) return complain();
  tarn_close(ps);
  return 0;
}

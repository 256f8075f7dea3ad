// Prints the rows of a data file as a worker reads them, for comparison with those of python/tarn/keys.py:
//
//   dump_rows JOB.toml FILE     a line a row: label, keys, weights and dense values, numbers as their bits
//   dump_rows JOB.toml FILE -   the numbers of the lines that are malformed
#include <bit>
#include <cstdio>
#include <string>

#include "core/job/job.h"
#include "worker/data/dataset.h"

namespace {

using namespace tarn;
using namespace tarn::worker;

void PrintFloats(std::size_t n, const float* values) {
  for (std::size_t i = 0; i < n; ++i) std::printf(" %x", std::bit_cast<std::uint32_t>(values[i]));
}

void Print(const Batch& batch) {
  std::printf("%g |", static_cast<double>(batch.labels[0]));
  for (const Key key : batch.keys) std::printf(" %llx", static_cast<unsigned long long>(key));
  std::printf(" |");
  PrintFloats(batch.weights.size(), batch.weights.data());
  std::printf(" |");
  PrintFloats(batch.dense.size(), batch.dense.data());
  std::printf("\n");
}

int Refuse(const Error& error) { return std::fprintf(stderr, "%s\n", ToString(error).c_str()), 1; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return std::fprintf(stderr, "usage: dump_rows JOB.toml FILE [-]\n"), 2;
  auto job = LoadJob(argv[1]);
  if (!job) return Refuse(job.error());
  job->data.malformed_max = ~0u;
  auto rows = Dataset::Open(job->data, argv[2]);
  if (!rows) return Refuse(rows.error());
  Batch batch;
  for (std::uint64_t row = 0; row < (*rows)->rows(); ++row) {
    if (const Status read = (*rows)->Read(row, 1, &batch); !read) return Refuse(read.error());
    if (argc == 4 && batch.rows == 0) std::printf("%llu\n", static_cast<unsigned long long>(row));
    if (argc == 3 && batch.rows == 1) Print(batch);
  }
  return 0;
}

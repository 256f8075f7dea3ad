// Limits of one thread and memory: copies, random rows at known addresses, and the row store with its look-up by key.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/data_plane/limits.h"
#include "core/hash.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "kernels/optimizer.h"
#include "kernels/rows.h"
#include "server/store/arena.h"
#include "server/store/store.h"

namespace tarn::bench {
namespace {

constexpr std::uint32_t kBits = 6;  // partition bits, the default of a job
constexpr std::size_t kBatches = 256;
constexpr std::size_t kMb = std::size_t{1} << 20;

struct Work {
  const char* name;
  std::string_view optimizer;
  bool apply;
};
constexpr Work kWork[] = {
    {"sparse_pull", "sgd", false}, {"sparse_push", "sgd", true}, {"adagrad_push", "row_wise_adagrad", true}};

Key KeyOf(std::uint64_t row) { return Mix64(row); }

// A request's rows in the order in which a client sends them, by partition; `index` is the row of each in the array.
struct Rows {
  std::vector<std::uint64_t> index;
  std::vector<Key> keys;
  std::vector<Section> sections;
};

class RowBench {
 public:
  RowBench(const LimitOptions& options, std::string_view optimizer) : options_(options) {
    spec_.id = TableId(1);
    spec_.name = "rows";
    spec_.dim = options.dim;
    spec_.optimizer.kind = optimizer;
    for (std::size_t i = 0; i < kBatches; ++i) batches_.push_back(MakeRows(i));
    gradients_.assign(options.batch * options.dim, 0.001f);
    out_.resize(options.batch * options.dim);
  }

  void OfArray(const Work& work);
  void OfStore(const Work& work);

 private:
  Rows MakeRows(std::uint64_t seed) const;
  template <typename Step>
  void Report(const char* what, const Work& work, Step step);

  const LimitOptions& options_;
  TableSpec spec_;
  std::vector<Rows> batches_;
  std::vector<float> gradients_, out_;
};

Rows RowBench::MakeRows(std::uint64_t seed) const {
  const Positioner position(spec_, TableSalt(1, spec_.name));
  SplitMix random(seed);
  std::vector<std::pair<PartitionId, std::uint64_t>> chosen;
  for (std::size_t i = 0; i < options_.batch; ++i) {
    const std::uint64_t row = random.Below(options_.rows);
    chosen.emplace_back(PartitionOf(position(KeyOf(row)), kBits), row);
  }
  std::ranges::stable_sort(chosen, {}, &std::pair<PartitionId, std::uint64_t>::first);
  Rows rows;
  for (const auto& [partition, row] : chosen) {
    if (rows.sections.empty() || rows.sections.back().partition != partition)
      rows.sections.push_back({partition, 0, {}});
    ++rows.sections.back().count;
    rows.keys.push_back(KeyOf(row));
    rows.index.push_back(row);
  }
  return rows;
}

template <typename Step>
void RowBench::Report(const char* what, const Work& work, Step step) {
  std::size_t next = 0;
  const double batches =
      PerSecond(options_.duration, 1, [&] { return step(batches_[next++ % kBatches]), 0; }, [](int) {});
  Print({.name = fmt::format("{}.{}", what, work.name),
         .value = batches * double(options_.batch),
         .unit = "rows/s",
         .settings = {{"rows", options_.rows},
                      {"dim", options_.dim},
                      {"batch", options_.batch},
                      {"optimizer", std::string(work.optimizer)}},
         .more = {}});
}

void RowBench::OfArray(const Work& work) {
  const RowLayout layout = LayoutOf(spec_);
  const std::size_t row_floats = layout.words();
  const std::size_t floats = options_.rows * row_floats;
  const std::unique_ptr<void, decltype(&std::free)> memory(server::AllocateLarge(floats * sizeof(float)), &std::free);
  auto* all = static_cast<float*>(memory.get());
  std::fill_n(all, floats, 0.5f);
  std::vector<float*> values(options_.batch), slots(options_.batch);
  Report("array", work, [&](const Rows& rows) {
    for (std::size_t i = 0; i < rows.index.size(); ++i) {
      values[i] = all + rows.index[i] * row_floats;
      slots[i] = values[i] + spec_.dim;
    }
    if (work.apply)
      kernels::ApplyOptimizer(spec_.optimizer, Clock(1), spec_.dim, values.size(), values.data(), slots.data(),
                              gradients_.data());
    else
      kernels::GatherRows(spec_.dim, values.size(), values.data(), out_.data());
  });
}

void RowBench::OfStore(const Work& work) {
  server::StoreOptions store_options{.job_seed = 1, .partition_bits = kBits, .owned = {}};
  for (std::uint32_t p = 0; p < 1u << kBits; ++p) store_options.owned.push_back(PartitionId(p));
  server::Store store(store_options);
  if (const Status added = store.AddTable(spec_); !added) Die(ToString(added.error()));
  const Positioner position(spec_, TableSalt(1, spec_.name));
  const auto* gradients = reinterpret_cast<const std::byte*>(gradients_.data());
  for (std::uint64_t row = 0; row < options_.rows; ++row) {
    const Key key = KeyOf(row);
    const Section section{PartitionOf(position(key), kBits), 1, {}};
    store.Apply(spec_.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32, gradients, Clock(0));
  }
  Report("store", work, [&](const Rows& rows) {
    if (work.apply)
      store.Apply(spec_.id, rows.sections, rows.keys, ValueCodec::kFp32, gradients, Clock(1));
    else
      store.Gather(spec_.id, rows.sections, rows.keys, ValueCodec::kFp32, reinterpret_cast<std::byte*>(out_.data()));
  });
}

void Copy(const LimitOptions& options, const char* name, std::size_t bytes) {
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes);
  const auto copy = [&] {
    std::memcpy(to.data(), from.data(), bytes);
    Keep(to.data());
    return 0;
  };
  const double copies = PerSecond(options.duration, 1, copy, [](int) {});
  Print({.name = name,
         .value = 1e-9 * copies * double(bytes),
         .unit = "GB/s",
         .settings = {{"bytes", bytes}},
         .more = {}});
}

}  // namespace

void MeasureCopy(const LimitOptions& options) {
  Copy(options, "memory.copy_1mb", kMb);
  Copy(options, "memory.copy_16mb", 16 * kMb);
  Copy(options, "memory.copy_256mb", 256 * kMb);
}

void MeasureRows(const LimitOptions& options) {
  for (const Work& work : kWork) {
    RowBench bench(options, work.optimizer);
    bench.OfArray(work);
    bench.OfStore(work);
  }
}

}  // namespace tarn::bench

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "bench/data_plane/workloads.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr std::size_t kBatches = 256;         // distinct ones, used cyclically
constexpr std::size_t kGradientBuffers = 16;  // distinct ones, used cyclically
constexpr double kProgressSeconds = 2;
constexpr std::size_t kLoadDepth = 8;
constexpr float kGradient = 0.5f;

struct Variant {
  std::string_view optimizer;
  const char* push;  // name of its figures
  const char* pull;  // likewise; null: pulls are measured only with the other variant
};
constexpr Variant kVariants[] = {{"sgd", "sparse_push", "sparse_pull"}, {"row_wise_adagrad", "adagrad_push", nullptr}};

Key KeyOf(std::uint64_t row) { return Mix64(row); }

class SparseTable {
 public:
  SparseTable(const WorkloadOptions& options, const Fleet& fleet, Client* client, Table table)
      : options_(options), fleet_(fleet), client_(client), table_(std::move(table)) {
    SplitMix random(1);
    std::vector<bool> taken(options_.rows);
    for (std::size_t b = 0; b < kBatches; ++b) batches_.push_back(RandomKeys(&random, &taken));
    for (std::size_t i = 0; i < kGradientBuffers; ++i) {
      gradients_.push_back(Buffer::Allocate(options_.batch * options_.dim * sizeof(float)));
      std::ranges::fill(gradients_.back().as_mutable<float>(), kGradient);
    }
  }

  Status Load();
  Status CheckLoaded();
  Status MeasurePulls(const std::string& name);
  Status MeasurePushes(const std::string& name);

 private:
  std::vector<Key> RandomKeys(SplitMix* random, std::vector<bool>* taken) const;
  Status MakePlans();
  template <typename Start>
  Status Measure(const std::string& name, Start start);
  const std::vector<Key>& NextBatch() { return batches_[next_++ % kBatches]; }
  const Plan& NextPlan() { return plans_[next_++ % kBatches]; }
  const Buffer& NextGradients() { return gradients_[next_gradients_++ % kGradientBuffers]; }

  const WorkloadOptions& options_;
  const Fleet& fleet_;
  Client* client_;
  Table table_;
  std::vector<std::vector<Key>> batches_;
  std::vector<Plan> plans_;
  std::vector<Buffer> gradients_;
  std::size_t next_ = 0, next_gradients_ = 0;
};

// Distinct keys in random order.
std::vector<Key> SparseTable::RandomKeys(SplitMix* random, std::vector<bool>* taken) const {
  std::vector<std::uint64_t> rows;
  while (rows.size() < options_.batch) {
    const std::uint64_t row = random->Below(options_.rows);
    if ((*taken)[row]) continue;
    (*taken)[row] = true;
    rows.push_back(row);
  }
  std::vector<Key> keys;
  for (const std::uint64_t row : rows) {
    (*taken)[row] = false;
    keys.push_back(KeyOf(row));
  }
  return keys;
}

// Pushes every row once.
Status SparseTable::Load() {
  std::deque<StatusFuture> in_flight;
  double last = Now();
  std::vector<Key> keys;
  const std::span<const float> gradients = static_cast<const Buffer&>(gradients_[0]).as<float>();
  for (std::uint64_t row = 0; row < options_.rows;) {
    keys.clear();
    while (keys.size() < options_.batch && row < options_.rows) keys.push_back(KeyOf(row++));
    in_flight.push_back(client_->Push(table_, keys, gradients.first(keys.size() * options_.dim)));
    if (in_flight.size() >= kLoadDepth) {
      TARN_RETURN_IF_ERROR(in_flight.front().Wait());
      in_flight.pop_front();
    }
    if (Now() - last < kProgressSeconds) continue;
    last = Now();
    fmt::print(stderr, "push_pull: table '{}': {} of {} rows written\n", table_.spec().name, row, options_.rows);
  }
  for (const StatusFuture& future : in_flight) TARN_RETURN_IF_ERROR(future.Wait());
  return {};
}

// Checks in four of the batches that all values are equal and below 0: the result of the same step from 0.
Status SparseTable::CheckLoaded() {
  for (std::size_t b = 0; b < kBatches; b += kBatches / 4) {
    const auto rows = client_->Pull(table_, batches_[b]);
    const auto values = rows.Wait();
    if (!values) return std::unexpected(values.error());
    const float first = values->front();
    if (first < 0 && std::ranges::all_of(*values, [&](float v) { return v == first; })) continue;
    return Fail(
        ErrorCode::kInternal,
        fmt::format("table '{}': after equal pushes the values of a batch differ, or are not below 0: the first is {}",
                    table_.spec().name, first));
  }
  return {};
}

Status SparseTable::MakePlans() {
  for (const std::vector<Key>& keys : batches_) {
    auto plan = client_->MakePlan(table_, keys);
    if (!plan) return std::unexpected(plan.error());
    plans_.push_back(*std::move(plan));
  }
  return {};
}

template <typename Start>
Status SparseTable::Measure(const std::string& name, Start start) {
  Status status;
  const CpuMeter meter([this] { return fleet_.ServerCpuSeconds(); });
  const double batches = PerSecond(options_.duration, options_.depth, start, [&](const auto& future) {
    if (const auto done = future.Wait(); !done && status) status = std::unexpected(done.error());
  });
  TARN_RETURN_IF_ERROR(status);
  Print({.name = fmt::format("tarn.{}.{}", options_.transport, name),
         .value = batches * double(options_.batch),
         .unit = "rows/s",
         .settings = {{"rows", options_.rows},
                      {"dim", options_.dim},
                      {"batch", options_.batch},
                      {"depth", options_.depth},
                      {"servers", options_.servers},
                      {"lanes", options_.lanes},
                      {"optimizer", std::string(Name(table_.spec().optimizer.kind))}},
         .more = meter.Cores()});
  return {};
}

Status SparseTable::MeasurePulls(const std::string& name) {
  if (plans_.empty()) TARN_RETURN_IF_ERROR(MakePlans());
  TARN_RETURN_IF_ERROR(Measure(name, [&] { return client_->Pull(table_, NextBatch()); }));
  return Measure(name + "_planned", [&] { return client_->Pull(NextPlan()); });
}

Status SparseTable::MeasurePushes(const std::string& name) {
  if (plans_.empty()) TARN_RETURN_IF_ERROR(MakePlans());
  TARN_RETURN_IF_ERROR(Measure(name, [&] { return client_->Push(table_, NextBatch(), NextGradients().as<float>()); }));
  return Measure(name + "_planned", [&] { return client_->Push(NextPlan(), NextGradients()); });
}

}  // namespace

Status MeasureSparse(const WorkloadOptions& options, const Fleet& fleet, Client* client) {
  for (const Variant& variant : kVariants) {
    TableSpec spec;
    spec.name = fmt::format("sparse-{}", variant.optimizer);
    spec.dim = options.dim;
    spec.optimizer.kind = variant.optimizer;
    spec.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
    auto opened = client->OpenTable(spec);
    if (!opened) return std::unexpected(opened.error());
    SparseTable table(options, fleet, client, *std::move(opened));
    TARN_RETURN_IF_ERROR(table.Load());
    TARN_RETURN_IF_ERROR(table.CheckLoaded());
    if (variant.pull != nullptr) TARN_RETURN_IF_ERROR(table.MeasurePulls(variant.pull));
    TARN_RETURN_IF_ERROR(table.MeasurePushes(variant.push));
  }
  return {};
}

}  // namespace tarn::bench

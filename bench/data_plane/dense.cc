#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench/data_plane/workloads.h"
#include "core/hash.h"

namespace tarn::bench {
namespace {

constexpr std::uint32_t kTensorDim = 1024;
constexpr float kRate = 0.5f;
constexpr std::size_t kSmallRows = 4096;
constexpr std::uint32_t kSmallDim = 256;  // 1 KB
constexpr std::size_t kSmallPlans = 1024;

struct Tensor {
  const char* name;
  std::uint64_t megabytes;  // of 2^20 bytes
  std::size_t depth;        // whole tensors in flight
};
constexpr Tensor kTensors[] = {{"1mb", 1, 8}, {"16mb", 16, 3}};

Expected<Table> OpenDense(Client* client, const std::string& name, std::uint64_t rows, std::uint32_t dim) {
  TableSpec spec;
  spec.name = name;
  spec.kind = TableKind::kDense;
  spec.rows = rows;
  spec.dim = dim;
  spec.initializer = {.kind = InitializerKind::kConstant, .a = 1, .b = 0};
  spec.optimizer.learning_rate = kRate;
  spec.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  return client->OpenTable(spec);
}

Status CheckValues(const RowsFuture& rows, float expected) {
  const auto values = rows.Wait();
  if (!values) return std::unexpected(values.error());
  if (std::ranges::all_of(*values, [&](float v) { return v == expected; })) return {};
  return Fail(ErrorCode::kInternal, fmt::format("not all values of a tensor are {}", expected));
}

// Stores the first error of operations in flight.
class Outcome {
 public:
  template <typename Future>
  void operator()(const Future& future) {
    if (const auto done = future.Wait(); !done && status_) status_ = std::unexpected(done.error());
  }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

Status MeasureTensor(const WorkloadOptions& options, const Fleet& fleet, Client* client, const Tensor& tensor) {
  const std::uint64_t bytes = tensor.megabytes << 20;
  const std::uint64_t rows = bytes / (kTensorDim * sizeof(float));
  const auto table = OpenDense(client, fmt::format("dense-{}", tensor.name), rows, kTensorDim);
  if (!table) return std::unexpected(table.error());
  std::vector<Key> keys(rows);
  std::iota(keys.begin(), keys.end(), Key{0});
  const auto plan = client->MakePlan(*table, keys);
  if (!plan) return std::unexpected(plan.error());
  std::vector<Buffer> gradients;
  for (std::size_t i = 0; i < tensor.depth; ++i) {
    gradients.push_back(Buffer::Allocate(bytes));
    std::ranges::fill(gradients.back().as_mutable<float>(), 0.5f);
  }
  TARN_RETURN_IF_ERROR(client->Push(*plan, gradients[0]).Wait());
  TARN_RETURN_IF_ERROR(CheckValues(client->Pull(*plan), 1 - kRate * 0.5f));

  std::size_t next = 0;
  const auto measure = [&](const char* verb, const auto& start) -> Status {
    Outcome outcome;
    const CpuMeter meter([&] { return fleet.ServerCpuSeconds(); });
    const double tensors = PerSecond(options.duration, tensor.depth, start, std::ref(outcome));
    TARN_RETURN_IF_ERROR(outcome.status());
    Print({.name = fmt::format("tarn.{}.dense_{}_{}", options.transport, verb, tensor.name),
           .value = 1e-9 * tensors * double(bytes),
           .unit = "GB/s",
           .settings =
               {{"bytes", bytes}, {"depth", tensor.depth}, {"servers", options.servers}, {"lanes", options.lanes}},
           .more = meter.Cores()});
    return {};
  };
  TARN_RETURN_IF_ERROR(measure("pull", [&] { return client->Pull(*plan); }));
  return measure("push", [&] { return client->Push(*plan, gradients[next++ % tensor.depth]); });
}

}  // namespace

Status MeasureDense(const WorkloadOptions& options, const Fleet& fleet, Client* client) {
  for (const Tensor& tensor : kTensors) TARN_RETURN_IF_ERROR(MeasureTensor(options, fleet, client, tensor));
  return {};
}

Status MeasureSmall(const WorkloadOptions& options, const Fleet& fleet, Client* client) {
  const auto table = OpenDense(client, "small", kSmallRows, kSmallDim);
  if (!table) return std::unexpected(table.error());
  SplitMix random(1);
  std::vector<Plan> plans;
  while (plans.size() < kSmallPlans) {
    const Key key = random.Below(kSmallRows);
    auto plan = client->MakePlan(*table, {&key, 1});
    if (!plan) return std::unexpected(plan.error());
    plans.push_back(*std::move(plan));
  }
  TARN_RETURN_IF_ERROR(CheckValues(client->Pull(plans[0]), 1));

  std::size_t next = 0;
  const auto start = [&] { return client->Pull(plans[next++ % kSmallPlans]); };
  Outcome outcome;
  const auto settings = [&](std::size_t depth) {
    return std::vector<Setting>{
        {"bytes", kSmallDim * sizeof(float)}, {"depth", depth}, {"servers", options.servers}, {"lanes", options.lanes}};
  };
  const CpuMeter many([&] { return fleet.ServerCpuSeconds(); });
  const double per_second = PerSecond(options.duration, options.small_depth, start, std::ref(outcome));
  Print({.name = fmt::format("tarn.{}.small_pull_many", options.transport),
         .value = per_second,
         .unit = "pulls/s",
         .settings = settings(options.small_depth),
         .more = many.Cores()});
  const CpuMeter one([&] { return fleet.ServerCpuSeconds(); });
  auto latencies = Latencies(options.duration, [&] { outcome(start()); });
  PrintLatencies({.name = fmt::format("tarn.{}.small_pull_one", options.transport),
                  .value = 0,
                  .unit = "",
                  .settings = settings(1),
                  .more = one.Cores()},
                 std::move(latencies));
  return outcome.status();
}

}  // namespace tarn::bench

#include "bench/scale_model/calibrate.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <span>
#include <vector>

#include "bench/scale_model/fleet_model.h"
#include "bench/scale_model/stage_costs.h"
#include "bench/scale_model/transport_costs.h"

namespace tarn::scale {
namespace {

struct Shape {
  std::uint32_t workers, servers, clocks;
};
// Enough batches that new rows are as rare as in a run over the whole set. Two or more workers, so that the first tick
// of a clock does not close it. Many shards, so that costs per message and per row can be separated; but a process with
// very many shards would measure caches that are colder than those of a server.
constexpr Shape kAggregated[] = {{2, 1, 100}, {2, 16, 30}, {2, 256, 12}, {8, 1, 16}, {8, 64, 6}, {64, 8, 3}};
constexpr Shape kImmediate[] = {{2, 1, 40}, {2, 64, 12}};

void PrintProgress(const char* what) { fmt::print(stderr, "scale_model: measuring {}\n", what); }

}  // namespace

Expected<Costs> Calibrate(const Job& given, const CalibrateOptions& options) {
  Costs costs;
  PrintProgress("the transport");
  TARN_RETURN_IF_ERROR(MeasureTransport(options.seconds, &costs));
  PrintProgress("batches");
  auto set = worker::Dataset::Open(given.data, given.data.train);
  if (!set) return std::unexpected(set.error());
  TARN_RETURN_IF_ERROR(MeasureStages(given, **set, options.seconds, &costs));
  PrintProgress("the state machines");
  const auto busy_core = BusyCore::Make(given, **set);
  if (!busy_core) return std::unexpected(busy_core.error());
  std::map<Work, std::vector<Sample>> samples;
  for (const bool aggregated : {true, false}) {
    // Without hidden layers there are fewer tables, which separates the cost per table.
    for (const bool hidden_layers : {true, false}) {
      Job job = given;
      job.consistency = {.mode = ConsistencyMode::kBsp,
                         .apply = aggregated ? ApplyMode::kAggregated : ApplyMode::kImmediate};
      job.fleet.partition_bits = 8;
      if (!hidden_layers) job.model.hidden.clear(), job.model.bottom.clear();
      auto workload = Workload::Make(job, {.batch_rows = job.train.batch_rows, .batches = 512, .small_rows = false});
      if (!workload) return std::unexpected(workload.error());
      for (const Shape& shape : aggregated ? std::span<const Shape>(kAggregated) : std::span<const Shape>(kImmediate)) {
        FleetOptions fleet{.workers = shape.workers, .servers = shape.servers, .clocks = shape.clocks};
        fleet.stragglers.share = 0;
        fleet.free = true;
        Meter meter;
        RunFleet(job, fleet, {}, workload->get(), &meter);
        for (const auto& [work, taken] : meter.samples()) {
          const bool only_immediate = work == Work::kApply;
          if (aggregated || only_immediate) samples[work].insert(samples[work].end(), taken.begin(), taken.end());
        }
      }
    }
  }
  for (const auto& [work, taken] : samples) costs[work] = Fit(taken);
  // Converts to costs with a single busy core: another core was busy during all measurements, with the echo process of
  // MeasureTransport or with a BusyCore.
  for (Line& line : costs.lines)
    for (double* ns : {&line.message_ns, &line.row_ns, &line.dense_ns, &line.third_ns, &line.table_ns})
      *ns /= costs.busy_slowdown;
  return costs;
}

}  // namespace tarn::scale

// scale_model: predicts the throughput of a fleet of many machines from the real state machines in simulated time and
// from costs measured on this machine. bench/scale runs it for many fleets and draws the results.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/data_plane/measure.h"
#include "bench/scale_model/calibrate.h"
#include "bench/scale_model/fleet_model.h"
#include "core/batch_scheduling.h"
#include "core/file.h"
#include "core/limits.h"

namespace {

using namespace tarn;
using namespace tarn::scale;

constexpr const char* kEpilog = R"(
First measure, then predict:
  scale_model calibrate --job examples/criteo-dlrm.toml --out costs.txt
  scale_model run --job examples/criteo-dlrm.toml --costs costs.txt --workers 64 --servers 8
  scale_model run ... --set consistency.mode=ssp consistency.staleness=2
  scale_model run ... --cores 2        all nodes share this machine's cores, as in the real runs of bench/scale

exit codes  0 done    1 failed    2 bad usage
)";

struct Arguments {
  std::string job = "examples/criteo-dlrm.toml", costs, out = "costs.txt", name = "model";
  std::vector<std::string> sets;
  CalibrateOptions calibrate;
  FleetOptions fleet;
  WorkloadOptions workload;
};

// Returns the exit status.
int PrintError(const Error& error) {
  fmt::print(stderr, "scale_model: {}\n", error.message);
  return 1;
}

void PrintResult(const Arguments& a, const Job& job, const Workload& workload, const FleetResult& r) {
  const FleetOptions& f = a.fleet;
  bench::Figure figure{a.name, r.samples_per_second, "samples/s", {}, {}};
  figure.settings = {{"workers", std::uint64_t{f.workers}},
                     {"servers", std::uint64_t{f.servers}},
                     {"bundle", std::uint64_t{f.bundle}},
                     {"mode", std::string(Name(job.consistency.mode))},
                     {"staleness", std::uint64_t{job.consistency.staleness}},
                     {"apply", std::string(Name(job.consistency.apply))},
                     {"batch_rows", std::uint64_t{workload.batch_rows()}},
                     {"prefetch", std::uint64_t{job.train.prefetch}},
                     {"partition_bits", std::uint64_t{job.fleet.partition_bits}},
                     {"node_cores", std::uint64_t{f.cores}},
                     {"gbit_per_second", fmt::format("{}", f.network.gbit_per_second)},
                     {"latency_us", fmt::format("{}", f.network.latency_us)},
                     {"stragglers", fmt::format("{}", f.stragglers.share)},
                     {"times_slower", fmt::format("{}", f.stragglers.times_slower)},
                     {"slow_workers", std::uint64_t{f.stragglers.workers}},
                     {"slow_servers", std::uint64_t{f.stragglers.servers}},
                     {"slow_batch_share", fmt::format("{}", f.stragglers.batch_share)},
                     {"straggler_period_s", fmt::format("{}", f.stragglers.period_seconds)},
                     {"warm_up", std::uint64_t{f.warm_up}},
                     {"clocks", std::uint64_t{f.clocks}},
                     {"free_ticks", std::uint64_t{f.free_ticks}},
                     {"seed", f.seed}};
  figure.more = {{"clock_ms", r.clock_seconds * 1e3},
                 {"compute_ms", r.batch_seconds * 1e3},
                 {"rows_per_batch", workload.mean_sparse_rows()},
                 {"worker_compute", r.worker_compute},
                 {"worker_messages", r.worker_messages},
                 {"worker_waits", r.worker_waits},
                 {"worker_io", r.worker_io},
                 {"server_busy", r.server_busy},
                 {"server_busiest", r.server_busiest},
                 {"server_io", r.server_io},
                 {"link_busiest", r.link_busiest},
                 {"messages_per_clock", r.messages_per_clock},
                 {"frames_per_clock", r.frames_per_clock},
                 {"tick_messages_per_clock", r.tick_messages_per_clock},
                 {"megabytes_per_clock", r.bytes_per_clock * 1e-6},
                 {"refused", double(r.refused)},
                 {"repeats", double(r.repeats)},
                 {"staleness_mean", r.staleness_mean},
                 {"scheduler_us", r.scheduler_us},
                 {"events", double(r.events)},
                 {"wall_seconds", r.wall_seconds},
                 {"peak_gib", r.peak_gib}};
  bench::Print(figure);
}

int RunOne(Arguments a, Job job) {
  if (a.fleet.servers % a.fleet.bundle != 0) {
    fmt::print(stderr, "scale_model: --bundle {}: expected a divisor of --servers {}\n", a.fleet.bundle,
               a.fleet.servers);
    return 2;
  }
  const std::uint32_t shards = a.fleet.servers / a.fleet.bundle;
  if (shards > (1u << limits::kPartitionBitsMax)) {
    fmt::print(stderr, "scale_model: {} simulated servers: expected at most {}\n", shards,
               1u << limits::kPartitionBitsMax);
    return 2;
  }
  job.fleet.partition_bits = std::max<std::uint32_t>(job.fleet.partition_bits, std::bit_width(shards - 1));
  const auto costs = ReadCosts(a.costs);
  if (!costs) return PrintError(costs.error());
  if (a.workload.batch_rows == 0) a.workload.batch_rows = job.train.batch_rows;
  auto workload = Workload::Make(job, a.workload);
  if (!workload) return PrintError(workload.error());
  std::unique_ptr<Workload> slow;
  if (a.fleet.stragglers.batch_share < 1) {
    WorkloadOptions smaller = a.workload;
    smaller.batch_rows = std::max(1u, std::uint32_t(smaller.batch_rows * a.fleet.stragglers.batch_share));
    auto made = Workload::Make(job, smaller);
    if (!made) return PrintError(made.error());
    slow = *std::move(made);
  }
  PrintResult(a, job, **workload, RunFleet(job, a.fleet, *costs, workload->get(), nullptr, slow.get()));
  return 0;
}

int CalibrateTo(const Arguments& a, const Job& job) {
  if (!UseBatchScheduling()) fmt::print(stderr, "scale_model: {}\n", kNoBatchScheduling);  // like servers and workers
  const auto costs = Calibrate(job, a.calibrate);
  if (!costs) return PrintError(costs.error());
  if (auto status = WriteFileAtomic(a.out, ToText(*costs)); !status) return PrintError(status.error());
  fmt::print("{}", ToText(*costs));
  return 0;
}

void AddJob(CLI::App* app, Arguments* a) {
  app->add_option("--job", a->job, "job file with model, data, batch and consistency")->capture_default_str();
  app->add_option("--set", a->sets, "section.key=value: override a key of the job, as in tools/launch")
      ->expected(1, 100);
}

void AddFleet(CLI::App* app, Arguments* a) {
  FleetOptions& f = a->fleet;
  app->add_option("--workers", f.workers, "number of workers")
      ->check(CLI::Range(1u, limits::kWorkersMax))
      ->capture_default_str();
  app->add_option("--servers", f.servers, "number of servers, with one shard each")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  app->add_option("--bundle", f.bundle, "servers simulated as one shard, for large fleets")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app->add_option("--batch", a->workload.batch_rows, "rows per batch of a worker; 0: as in the job")
      ->capture_default_str();
  app->add_option("--batches", a->workload.batches, "distinct batches, read from the data set")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  app->add_option(
         "--cores", f.cores,
         "cores of one machine for all nodes, each of which stays on one core; 0: one machine per node, with a "
         "network")
      ->capture_default_str();
  app->add_option("--gbit", f.network.gbit_per_second, "bandwidth of each link and direction, Gb/s; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--latency", f.network.latency_us, "one-way latency, us")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--stragglers", f.stragglers.share, "share of slow nodes")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--slower", f.stragglers.times_slower, "slowdown of slow nodes")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
  app->add_option("--straggler-batch", f.stragglers.batch_share,
                  "rows of a slow worker's batch as a share of the others' (train.batch_shares)")
      ->check(CLI::Range(0.001, 1.0))
      ->excludes(app->add_option("--straggler-period", f.stragglers.period_seconds,
                                 "seconds until other nodes are slow; 0: always the same ones")
                     ->check(CLI::NonNegativeNumber)
                     ->capture_default_str())
      ->capture_default_str();
  app->add_option("--straggler-kind", "which nodes may be slow: workers, servers or both")
      ->check(CLI::IsMember({"workers", "servers", "both"}))
      ->default_str("both")
      ->each([&f](const std::string& kind) {
        f.stragglers.workers = kind != "servers";
        f.stragglers.servers = kind != "workers";
      });
  app->add_option("--warm-up", f.warm_up, "clocks before the measurement")
      ->check(CLI::Range(1u, 10000u))
      ->capture_default_str();
  app->add_option("--clocks", f.clocks, "measured clocks")->check(CLI::Range(1u, 10000u))->capture_default_str();
  app->add_option("--seed", f.seed, "random seed: selects the slow nodes and the first batches")->capture_default_str();
  app->add_flag("--free-ticks", f.free_ticks, "ticks take no time: shows the most that cheaper ticks could gain");
  app->add_flag("--free", f.free, "only batches take time: the result must be workers x batch / compute");
  app->add_option("--name", a->name, "name in the printed line")->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  a.workload.batch_rows = 0;
  a.fleet.progress_seconds = 2;
  CLI::App app{"Predicts the throughput of large fleets: the real scheduler, shards and clients in simulated time."};
  app.footer(kEpilog);
  app.require_subcommand(1);
  CLI::App* calibrate = app.add_subcommand("calibrate", "measure the costs of the job's work on this machine");
  AddJob(calibrate, &a);
  calibrate->add_option("--out", a.out, "file to write")->capture_default_str();
  calibrate->add_option("--seconds", a.calibrate.seconds, "seconds per measurement")
      ->check(CLI::Range(0.001, 1e9))
      ->capture_default_str();
  CLI::App* run = app.add_subcommand("run", "simulate one fleet and print one line of JSON");
  AddJob(run, &a);
  run->add_option("--costs", a.costs, "file written by calibrate")->required();
  AddFleet(run, &a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto job = LoadJob(a.job, a.sets);
  if (!job) {
    fmt::print(stderr, "scale_model: {}\n", job.error().message);
    return 2;
  }
  return *calibrate ? CalibrateTo(a, *job) : RunOne(a, *job);
}

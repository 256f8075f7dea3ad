// Measures push and pull between a real server process and a real worker process: see --help and README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/data_plane/fleet.h"
#include "bench/data_plane/workloads.h"
#include "core/job/job_fields.h"
#include "core/limits.h"

namespace {

using namespace tarn;
using namespace tarn::bench;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr const char* kAbout =
    "Measures push and pull between a server process and a worker process on this machine.\n"
    "Starts tarn-scheduler and tarn-server from its own folder, joins them as the worker through the client library,\n"
    "and prints one line of JSON per figure:\n\n"
    "  tarn.TRANSPORT.sparse_pull, sparse_push    random rows of a large table, SGD; from keys\n"
    "  tarn.TRANSPORT.adagrad_push                the same with row-wise Adagrad\n"
    "  ..._planned                                the same with existing plans, as in training\n"
    "  tarn.TRANSPORT.dense_pull_1mb, ...         whole tensors of 1 MB and 16 MB, GB/s\n"
    "  tarn.TRANSPORT.small_pull_many, _one       rows of 1 KB: pulls/s with many in flight; round trip of one\n\n"
    "TRANSPORT is tcp, ipc, shm (shared memory, the default on one host), or spin (shm with\n"
    "fleet.busy_poll_us = 1000; only rows of 1 KB). server_cores and worker_cores are the numbers of cores that\n"
    "each side kept busy. data_plane_limits measures the limits of these figures; tools/bench runs both several\n"
    "times and makes a table.\n\n"
    "  push_pull --only sparse --transport tcp --rows 1000000\n\n"
    "Exit status: 0 done, 1 failed, 2 bad usage.";

struct Flags {
  std::vector<std::string> transports, only;
  WorkloadOptions workload;
};

constexpr struct {
  const char* name;
  Status (*measure)(const WorkloadOptions&, const Fleet&, Client*);
} kWorkloads[] = {{"sparse", MeasureSparse}, {"dense", MeasureDense}, {"small", MeasureSmall}};

const std::vector<std::string> kTransports = {"tcp", "ipc", "shm", "spin"};
constexpr std::uint32_t kBusyPollUs = 1000;

bool Wanted(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

Status MeasureOver(const std::string& transport, const Flags& flags) {
  const std::string programs = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  const bool spin = transport == "spin";
  if (spin && !Wanted(flags.only, "small")) return {};
  const auto fleet = Fleet::Start({.programs = programs,
                                   .transport = spin ? "shm" : transport,
                                   .busy_poll_us = spin ? kBusyPollUs : 0,
                                   .lanes = flags.workload.lanes,
                                   .servers = flags.workload.servers});
  if (!fleet) return std::unexpected(fleet.error());
  auto client = (*fleet)->Connect();
  if (!client) return std::unexpected(client.error());
  WorkloadOptions options = flags.workload;
  options.transport = transport;
  for (const auto& workload : kWorkloads)
    if (Wanted(flags.only, workload.name) && (!spin || workload.measure == MeasureSmall))
      TARN_RETURN_IF_ERROR(workload.measure(options, **fleet, &*client));
  return client->Leave();
}

void AddOptions(CLI::App* app, Flags* flags) {
  WorkloadOptions& o = flags->workload;
  app->add_option("--transport", flags->transports, "tcp (loopback), ipc, shm or spin; may be repeated (default: all)")
      ->check(CLI::IsMember(kTransports));
  app->add_option("--only", flags->only, "sparse, dense or small; may be repeated (default: all)")
      ->check(CLI::IsMember({"sparse", "dense", "small"}));
  app->add_option("--rows", o.rows, "rows of a sparse table")->capture_default_str()->check(CLI::Range(1L, 1L << 40));
  app->add_option("--dim", o.dim, "fp32 values per row")
      ->capture_default_str()
      ->check(CLI::Range(1u, limits::kRowDimMax));
  app->add_option("--batch", o.batch, "distinct keys per sparse request; at most --rows")
      ->capture_default_str()
      ->check(CLI::Range(1L, 1L << 40));
  app->add_option("--depth", o.depth, "sparse requests in flight; the client delays those beyond its credit")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app->add_option("--small-depth", o.small_depth, "pulls of 1 KB in flight")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app->add_option("--servers", o.servers, "server processes, of one shard each")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app->add_option("--lanes", o.lanes, "fleet.lanes: connections to each server, without shared memory")
      ->capture_default_str()
      ->check(CLI::Range(1u, kJobLanesMax));
  app->add_option("--seconds", o.duration.seconds,
                  "seconds per measurement; a warm-up of a quarter of this time precedes it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{kAbout};
  AddOptions(&app, &flags);
  try {
    app.parse(argc, argv);
    if (flags.workload.batch > flags.workload.rows)
      throw CLI::ValidationError("--batch", fmt::format("{} distinct keys of {} rows: expected at most --rows",
                                                        flags.workload.batch, flags.workload.rows));
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  for (const std::string& transport : kTransports) {
    if (!Wanted(flags.transports, transport)) continue;
    if (const Status status = MeasureOver(transport, flags); !status) {
      fmt::print(stderr, "push_pull: over {}: {}\n", transport, ToString(status.error()));
      return kExitFailure;
    }
  }
  return 0;
}

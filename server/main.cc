// tarn-server: owns partitions of the tables, one thread a shard.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <random>

#include "core/batch_scheduling.h"
#include "core/job/job.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/process_context.h"
#include "core/process_limits.h"
#include "net/http/status_flags.h"
#include "net/slow_transport.h"
#include "net/zmq/context.h"
#include "server/loop.h"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDiverged = 4;

constexpr const char* kAbout =
    "A server of a tarn fleet. It owns a share of the rows of all tables, in one shard or more: each is a thread with\n"
    "its own socket, to which workers connect. It joins the scheduler, receives the job from it, and exits when the\n"
    "scheduler stops the run.\n"
    "tools/launch starts servers; by hand, for a job with servers = 2, shards = 2 under [fleet]:\n\n"
    "  tarn-server --scheduler runs/mine --rank 0 --shards 2 --run-dir runs/mine\n"
    "  tarn-server --scheduler runs/mine --rank 1 --shards 2 --run-dir runs/mine\n\n"
    "SIGTERM ends it at once. SIGINT (Ctrl-C) does so only before the scheduler has answered; later the server\n"
    "ignores it, because the scheduler then stops the fleet after a checkpoint.\n"
    "Exit status: 0 done, 1 failed, 2 bad usage, 4 the training diverged.";

int Fail(const std::string& message, int code = kExitFailure) {
  tarn::LogAndPrint(tarn::LogLevel::kError, tarn::server::kProgram, message);
  tarn::FlushLog();
  return code;
}

// Sets the options that were not given, from the job in the run directory.
tarn::Status TakeFromRun(tarn::server::ServerOptions* options) {
  const auto fleet = tarn::FleetOfRun(options->run_dir);
  if (!fleet && options->shards == 0) return std::unexpected(fleet.error());
  if (options->shards == 0) options->shards = fleet->shards;
  if (options->io_threads == 0) options->io_threads = tarn::net::IoThreadsFor(fleet ? fleet->lanes : 1);
  return {};
}

// Estimates for the check of the address space: bytes of libraries and heap; threads per process, per shard, and
// additionally per shard with a tier.
constexpr std::uint64_t kServerBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kServerThreads = 10, kShardThreads = 5, kTierThreads = 5;

// Checks the limits of open files and of address space. Also raises the soft limit of open files to the hard limit,
// because a tier has one open file per segment.
tarn::Status CheckLimits(const tarn::server::ServerOptions& options) {
  using namespace tarn;
  const FleetSection fleet = FleetOfRun(options.run_dir).value_or(FleetSection{});
  const std::string what =
      fmt::format("{} shards, {} workers and {} lanes", options.shards, fleet.workers, fleet.lanes);
  TARN_RETURN_IF_ERROR(RequireFiles(net::ServerFiles(options.shards, fleet.workers, fleet.lanes), what));
  const std::uint64_t rings = options.shm ? std::min<std::uint64_t>(fleet.workers, limits::kShmLanesMax) : 0;
  std::uint64_t rows = 0;
  if (const auto job = LoadJob(options.run_dir + "/job.toml")) rows = job->storage.memory;
  const std::uint64_t bytes = kServerBytes + options.shards * rings * 2 * limits::kShmRingBytes + rows;
  return RequireAddressSpace(bytes, kServerThreads + options.shards * (kShardThreads + (rows == 0 ? 0 : kTierThreads)),
                             rows == 0 ? what : what + fmt::format(" with storage.memory = {} MiB", rows >> 20));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tarn;
  server::ServerOptions options;
  CLI::App app{kAbout};
  app.add_option("--scheduler", options.scheduler,
                 "the scheduler's address, tcp://HOST:PORT or ipc://PATH, or the folder of its run")
      ->required();
  app.add_option("--rank", options.rank.value, "this server's rank, 0 .. servers - 1")
      ->required()
      ->check(CLI::Range(0u, limits::kShardsMax - 1));
  options.shards = 0;
  app.add_option("--shards", options.shards,
                 "shards of each server; 0: fleet.shards of RUN_DIR/job.toml, or 1 without that file")
      ->check(CLI::Range(0u, limits::kShardsMax));
  app.add_option("--run-dir", options.run_dir, "the run's folder, for logs/server-RANK.log and metrics.jsonl");
  app.add_option("--bind", options.bind,
                 "address on which the shards listen, tcp://HOST:PORT; PORT *: each shard gets a free port; a number: "
                 "shard i gets PORT + i; or ipc:///FOLDER/NAME, NAME-i for shard i above 0; default: Unix sockets in "
                 "RUN_DIR/sockets that only this user can open, or with --keys or --insecure tcp://127.0.0.1:*");
  app.add_option("--advertise", options.advertise,
                 "host name or address that workers connect to; default: the host of --bind, or if that is a wildcard "
                 "(0.0.0.0, *), "
                 "the address of the interface that leads to the scheduler");
  app.add_option(
      "--record", options.record,
      "folder for a record of the order in which this server applies pushes and answers pulls (tools/replay)");
  app.add_option("--join-seconds", options.join_seconds, "seconds to wait until the whole fleet has joined")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e9));
  app.add_option(
      "--keys", options.keys,
      "key file of the fleet, made by tarn-keys: encrypts all connections and admits only holders of the file");
  app.add_flag("--insecure", options.insecure,
               "allow TCP without keys: anyone who can connect to a port can change the job");
  app.add_flag_callback(
      "--no-shm", [&] { options.shm = false; }, "use only sockets, no shared memory with workers on this host");
  options.io_threads = 0;
  app.add_option("--io-threads", options.io_threads,
                 "ZeroMQ threads; 0: one per two fleet.lanes of RUN_DIR/job.toml, or 1 without that file")
      ->check(CLI::Range(0, 64));
  net::StatusServerOptions http;
  net::AddStatusFlags(&app, &http);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }

  const bool batch = UseBatchScheduling();
  const auto process = ProcessContext::Start({SIGINT, SIGTERM});
  if (!process) return Fail(process.error().message);
  const std::string role = fmt::format("server-{}", options.rank.value);
  const std::string log_path = options.run_dir.empty() ? "" : options.run_dir + "/logs/" + role + ".log";
  if (Status s = InitLog({.role = role, .path = log_path, .also_stderr = log_path.empty()}); !s)
    return Fail(s.error().message);
  if (!batch) LogWarning("{}", kNoBatchScheduling);
  if (const Status taken = TakeFromRun(&options); !taken) return Fail(taken.error().message);
  if (const Status limits = CheckLimits(options); !limits) return Fail(limits.error().message);
  if (const auto job = LoadJob(options.run_dir + "/job.toml"); job && net::HasSlowNetwork(job->delays))
    options.slow_network = [job = *job](ShardId shard) { return net::SlowNetwork(job, Role::kShard, shard.value); };
  std::random_device random;
  for (std::uint32_t i = 0; i < options.shards; ++i)
    options.nonces.push_back((std::uint64_t{random()} << 32) | random() | 1);

  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit then is an error like a full disk
  http.insecure = options.insecure;
  http.advertise = options.advertise;
  http.peer = options.scheduler;
  http.run = net::RunLabel(options.run_dir);
  http.role = "server";
  http.rank = fmt::format("{}", options.rank.value);
  const auto status_server = net::StatusServer::Start(process->get(), http);
  if (!status_server) return Fail(status_server.error().message);
  for (std::uint32_t i = 0; i < options.shards; ++i) options.feeds.push_back((*status_server)->AddFeed());
  options.http = (*status_server)->url();
  server::Server server(options);
  (*process)->OnSignal([&server](int signal) { signal == SIGINT ? server.RequestInterrupt() : server.RequestStop(); });
  const Status status = CatchLimits([&] { return server.Run(); });
  (*process)->OnSignal([](int) {});
  if (!status)
    return Fail(status.error().message,
                status.error().code == tarn::ErrorCode::kDiverged ? kExitDiverged : kExitFailure);
  LogInfo("done");
  FlushLog();
  return 0;
}

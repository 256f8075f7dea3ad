// tarn-worker: reads data, computes gradients, pulls and pushes.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

#include "core/batch_scheduling.h"
#include "core/job/job.h"
#include "core/log.h"
#include "core/process_context.h"
#include "core/process_limits.h"
#include "net/http/status_flags.h"
#include "net/slow_transport.h"
#include "net/zmq/transport.h"
#include "worker/train/algorithms_file.h"
#include "worker/train/trainer.h"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitFenced = 3;
constexpr int kExitDiverged = 4;
constexpr double kSchedulerSeconds = 600;  // longest wait until the scheduler has written its address file

int ReportFailure(const tarn::Error& error) {
  tarn::LogAndPrint(tarn::LogLevel::kError, tarn::worker::kProgram, error.message);
  tarn::FlushLog();
  return kExitFailure;
}

tarn::Status CheckLimits(const tarn::FleetSection& fleet) {
  const std::uint64_t shards = std::uint64_t{fleet.servers} * fleet.shards;
  const std::string what = fmt::format("the connections to {} shards by {} lanes", shards, fleet.lanes);
  return tarn::RequireFiles(tarn::net::WorkerFiles(shards, fleet.lanes) + tarn::net::kHttpFiles, what);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tarn;
  worker::TrainerOptions options;
  bool insecure = false;
  std::string keys;
  net::StatusServerOptions http;
  CLI::App app{
      "A worker of a tarn fleet. It gets the job from the scheduler, reads the data that is leased to it,\n"
      "pulls rows, computes gradients and pushes them. tools/launch starts workers. To start one by hand:\n\n"
      "  tarn-worker --scheduler runs/mine\n\n"
      "SIGTERM ends it. SIGINT (Ctrl-C) does so only before the scheduler has answered; later the worker ignores it,\n"
      "because the scheduler then stops the fleet after a checkpoint.\n"
      "Exit status: 0 done, 1 failed, 2 bad usage, 3 declared dead by the scheduler (start it again),\n"
      "4 training diverged."};
  app.add_option("--scheduler", options.scheduler,
                 "address of the scheduler, tcp://HOST:PORT or ipc://PATH, or the folder of its run")
      ->required();
  std::int64_t rank = -1;
  app.add_option("--rank", rank, "rank of this worker; -1: the scheduler chooses")->check(CLI::Range(-1, 16383));
  app.add_option("--run-dir", options.run_dir, "folder of the run, for logs and traces");
  app.add_option(
      "--keys", keys,
      "key file of the fleet, made by tarn-keys: encrypts all connections and admits only holders of the file");
  app.add_option("--record", options.record,
                 "append a record of leases, batches and ticks to this file (tools/replay)");
  app.add_flag("--insecure", insecure, "allow TCP without keys: anyone who can connect to a port can change the job");
  bool shm = true;
  app.add_flag_callback(
      "--no-shm", [&] { shm = false; }, "use only sockets, no shared memory with servers on this host");
  int io_threads = 0;
  app.add_option("--io-threads", io_threads,
                 "ZeroMQ threads; 0: one per two fleet.lanes of RUN_DIR/job.toml, or 1 without that file")
      ->check(CLI::Range(0, 64));
  net::AddStatusFlags(&app, &http);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  if (rank >= 0) options.rank = static_cast<std::uint32_t>(rank);
  std::atomic<bool> ended = false;  // by a signal
  const bool batch = UseBatchScheduling();
  const auto process = ProcessContext::Start({SIGINT, SIGTERM});
  if (!process) return ReportFailure(process.error());
  const std::string role = rank >= 0 ? fmt::format("worker-{}", rank) : fmt::format("worker-{}", getpid());
  const std::string log_path = options.run_dir.empty() ? "" : options.run_dir + "/logs/" + role + ".log";
  if (Status s = InitLog({.role = role, .path = log_path, .also_stderr = options.run_dir.empty()}); !s) {
    fmt::print(stderr, "tarn-worker: {}\n", s.error().message);
    return kExitFailure;
  }
  if (!batch) LogWarning("{}", kNoBatchScheduling);
  options.pipeline.stepper.algorithms_file =
      worker::AlgorithmsFile(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"), options.run_dir);
  std::random_device random;
  options.nonce = (std::uint64_t{random()} << 32) | random() | 1;

  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit then fails like one to a full disk

  const FleetSection fleet = FleetOfRun(options.run_dir).value_or(FleetSection{});
  if (Status s = CheckLimits(fleet); !s) return ReportFailure(s.error());
  if (io_threads == 0) io_threads = net::IoThreadsFor(fleet.lanes);
  net::ZmqContext context({.io_threads = io_threads});
  if (Status s = context.SecureFromFile(keys); !s) {
    fmt::print(stderr, "tarn-worker: {}\n", s.error().message);
    return kExitFailure;
  }
  http.insecure = insecure;
  http.peer = options.scheduler;
  http.run = net::RunLabel(options.run_dir);
  http.role = "worker";
  http.rank = rank >= 0 ? fmt::format("{}", rank) : "";
  const auto status = net::StatusServer::Start(process->get(), http);
  if (!status) return ReportFailure(status.error());
  options.feed = (*status)->AddFeed();
  options.http = (*status)->url();
  (*process)->OnSignal([&ended](int) { ended = true; });
  const auto scheduler =
      net::SchedulerEndpoint(options.scheduler, kSchedulerSeconds, [&ended] { return ended.load(); });
  if (!scheduler) return ReportFailure(scheduler.error());
  options.scheduler = *scheduler;
  net::ZmqTransport sockets(&context, {.insecure = insecure, .shm = shm, .lend_payloads = true});
  std::optional<net::SlowTransport> slow;
  if (const auto job = LoadJob(options.run_dir + "/job.toml"); job && net::HasSlowNetwork(job->delays))
    slow.emplace(&sockets,
                 net::SlowNetwork(*job, Role::kWorker, options.rank == kAnyRank ? options.nonce : options.rank));
  options.shm = shm && !slow;  // with simulated delays, key lists get numbers as over a network (rule W3)
  worker::Trainer trainer(options, slow ? static_cast<net::Transport*>(&*slow) : &sockets);
  (*process)->OnSignal(
      [&trainer](int signal) { signal == SIGINT ? trainer.RequestInterrupt() : trainer.RequestAbort(); });
  if (ended) trainer.RequestAbort();
  worker::TrainerEnd end{};
  const Status limits = CatchLimits([&]() -> Status {
    end = trainer.Run();
    return {};
  });
  (*process)->OnSignal([](int) {});
  if (!limits) return ReportFailure(limits.error());
  if (end == worker::TrainerEnd::kDone) return 0;
  LogAndPrint(LogLevel::kError, worker::kProgram, trainer.error().message);
  FlushLog();
  if (end == worker::TrainerEnd::kFenced) return kExitFenced;
  return trainer.error().code == ErrorCode::kDiverged ? kExitDiverged : kExitFailure;
}

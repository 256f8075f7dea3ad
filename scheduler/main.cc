// tarn-scheduler: places partitions, monitors the fleet, grants data leases, coordinates checkpoints and evaluation.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "core/process_context.h"
#include "core/process_limits.h"
#include "net/http/status_flags.h"
#include "net/zmq/transport.h"
#include "scheduler/loop.h"
#include "scheduler/state/resume.h"
#include "scheduler/state/state.h"

namespace {

using namespace tarn;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDiverged = 4;

struct Flags {
  std::string job, run_dir, resume;
  std::vector<std::string> overrides;
  bool insecure = false;
  std::string keys;
  net::StatusServerOptions http;
  scheduler::LoopOptions loop;
  std::optional<FileLock> lock;  // of the run's folder
};

// Prints the newer checkpoints that are skipped as incomplete, because a complete one whose MANIFEST was lost looks the
// same.
void PrintSkippedCheckpoints(const std::string& run_dir, const std::string& chosen) {
  const auto all = ListCheckpoints(run_dir);
  const auto id = CheckpointIdOf(chosen);
  if (!all || !id) return;
  for (const CheckpointDirectory& checkpoint : *all)
    if (checkpoint.id > *id && !checkpoint.has_manifest)
      fmt::print(stderr, "tarn-scheduler: {}: skipped, because without a {} it is incomplete\n", checkpoint.path,
                 kManifestName);
}

Status LoadCheckpoint(Flags* flags, const std::string& path) {
  auto& options = flags->loop;
  TARN_RETURN_IF_ERROR(scheduler::CheckLogsHaveState(path));
  auto directory = scheduler::ResolveCheckpoint(path);
  if (!directory) return std::unexpected(directory.error());
  PrintSkippedCheckpoints(path, *directory);
  options.resume_directory = std::filesystem::absolute(*directory).string();
  auto manifest = scheduler::ReadMovedManifest(options.resume_directory);
  if (!manifest) return std::unexpected(manifest.error());
  options.resume = std::move(*manifest);
  return {};
}

// The job of --job, else the text `kept` that was read from `origin`; with the overrides of --set.
Expected<Job> ReadJob(const Flags& flags, const std::string& kept, const std::string& origin) {
  std::vector<std::string> notes;
  auto job = flags.job.empty() ? ParseJob(kept, origin, "/", flags.overrides, &notes)
                               : LoadJob(flags.job, flags.overrides, &notes);
  for (const std::string& note : notes) fmt::print(stderr, "tarn-scheduler: {}\n", note);
  if (!job) return job;
  // The nodes receive it with all settings written out.
  const std::string whole = fmt::format("{}, with all settings written out", flags.job.empty() ? origin : flags.job);
  if (auto again = ParseJob(ToToml(*job), whole, "/"); !again) return again;
  return job;
}

// Sets the options to continue a run, all of whose processes have ended, from the end of its logs: in its own folder
// and with the same job.
Status LoadRestart(Flags* flags, scheduler::SchedulerState state) {
  auto& options = flags->loop;
  std::error_code ignored;
  if (!std::filesystem::equivalent(flags->run_dir, flags->resume, ignored))
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--resume {0}: a run with a log continues only in its own folder: use --run-dir {0}. "
                            "To start another run from its newest checkpoint: --resume {0}/checkpoints/ckpt-N",
                            flags->resume));
  auto job = ReadJob(*flags, state.progress.job_text, flags->resume);
  if (!job) return std::unexpected(job.error());
  options.job = std::move(*job);
  // Parsed by this build, so that keys newer than the run have their defaults in both.
  const auto previous = ParseJob(state.progress.job_text, flags->resume, "/");
  if (!previous) return std::unexpected(previous.error());
  if (ResolvedToml(options.job) != ResolvedToml(*previous))
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--resume {0}: this job differs from that of the run, and a run with a log continues unchanged. To "
                    "change it, resume from a checkpoint: {0}/checkpoints/ckpt-N",
                    flags->resume));
  auto whole = scheduler::TakeUp(std::filesystem::absolute(flags->run_dir).string(), &state);
  if (!whole) return std::unexpected(whole.error());
  options.resume = *std::move(whole);
  options.resume_directory = state.whole_directory;
  options.run = state.run;
  options.first_incarnation = state.progress.next_incarnation.value;
  // The logs contain no state of the workers' programs.
  const bool to_checkpoint = state.programs_keep_state ||
                             (options.resume && std::ranges::any_of(options.resume->blobs, &WorkerBlob::program_state));
  if (to_checkpoint && state.begun)
    fmt::print(
        stderr,
        "tarn-scheduler: the run {} and not from the end of its logs, because they do not contain the state that "
        "the workers' programs keep\n",
        options.resume ? "goes on from " + options.resume_directory
                       : "has no checkpoint: it starts again from the beginning");
  if (state.begun && !to_checkpoint) options.restore = std::move(state);
  return {};
}

// A new run must not start in the folder of an unfinished run: it would replace the state that the logs need.
Status CheckFolderIsFree(const std::string& run_dir) {
  std::error_code ignored;
  if (std::filesystem::exists(run_dir, ignored) && !std::filesystem::is_directory(run_dir, ignored))
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--run-dir {}: expected a folder, found a file", run_dir));
  TARN_RETURN_IF_ERROR(scheduler::CheckLogsHaveState(run_dir));
  const auto state = scheduler::ReadState(run_dir);
  if (state ? !state->begun : state.error().code == ErrorCode::kNotFound) return {};
  return Fail(
      ErrorCode::kAlreadyExists,
      fmt::format("{0}/{1}: an unfinished run is in this folder, expected another folder. To continue that run: "
                  "--resume {0}",
                  run_dir, scheduler::kStateName));
}

// Two schedulers in one folder would overwrite each other's state and remove each other's checkpoints. A folder that
// does not exist yet is locked when it is created. A process that was just killed may hold its lock for a moment.
Status LockFolder(Flags* flags) {
  constexpr std::chrono::milliseconds kPatience(2000);
  std::error_code ignored;
  if (flags->lock || !std::filesystem::is_directory(flags->run_dir, ignored)) return {};
  auto lock =
      FileLock::Take(flags->run_dir + "/" + scheduler::kLockName,
                     "another scheduler is running in this folder: expected a folder that is not in use", kPatience);
  if (!lock) return std::unexpected(lock.error());
  flags->lock.emplace(*std::move(lock));
  return {};
}

// Reads the state or the checkpoint to resume from, if there is one, and the job.
Status LoadAll(Flags* flags) {
  TARN_RETURN_IF_ERROR(LockFolder(flags));
  auto& options = flags->loop;
  std::random_device random;
  options.run = std::uint64_t{random()} << 32 | random() | 1;
  if (!flags->resume.empty()) {
    auto state = scheduler::ReadState(flags->resume);
    if (state) return LoadRestart(flags, *std::move(state));
    if (state.error().code != ErrorCode::kNotFound) return std::unexpected(state.error());
    TARN_RETURN_IF_ERROR(LoadCheckpoint(flags, flags->resume));
  }
  TARN_RETURN_IF_ERROR(CheckFolderIsFree(flags->run_dir));
  TARN_RETURN_IF_ERROR(scheduler::CheckCheckpointsAreOurs(flags->run_dir, options.resume_directory));
  auto job = ReadJob(*flags, options.resume ? options.resume->job_text : std::string(), options.resume_directory);
  if (!job) return std::unexpected(job.error());
  options.job = std::move(*job);
  if (!options.resume) return {};
  TARN_RETURN_IF_ERROR(scheduler::CheckEpochs(options.job, *options.resume, options.resume_directory));
  return scheduler::CheckSameJob(options.job, *options.resume, options.resume_directory);
}

// Returns `code`, the exit status.
int PrintError(int code, const Error& error) {
  fmt::print(stderr, "tarn-scheduler: {}\n", error.message);
  return code;
}

Status CheckLimits(const Job& job) {
  const std::uint64_t shards = std::uint64_t{job.fleet.servers} * job.fleet.shards, workers = job.fleet.workers;
  const std::string what = fmt::format("the connections of {} shards and {} workers", shards, workers);
  return RequireFiles(net::SchedulerFiles(shards, workers), what);
}

int RunLoop(Flags flags, ProcessContext* process) {
  if (Status s = CheckLimits(flags.loop.job); !s) return PrintError(kExitFailure, s.error());
  std::error_code error;
  std::filesystem::create_directories(flags.run_dir + "/checkpoints", error);
  if (error)
    return PrintError(kExitFailure, {ErrorCode::kIo,
                                     fmt::format("{}: cannot create this folder: {}", flags.run_dir, error.message())});
  if (Status s = LockFolder(&flags); !s) return PrintError(kExitFailure, s.error());
  flags.loop.run_dir = std::filesystem::absolute(flags.run_dir).string();
  if (Status s = InitLog({.role = "scheduler-0", .path = flags.loop.run_dir + "/logs/scheduler-0.log"}); !s)
    return PrintError(kExitFailure, s.error());

  net::ZmqContext context;
  if (Status s = context.SecureFromFile(flags.keys); !s) return PrintError(kExitFailure, s.error());
  if (flags.loop.bind.empty()) flags.loop.bind = net::DefaultBind(!flags.keys.empty(), flags.insecure);
  net::RemoveSockets(flags.loop.run_dir, true);
  if (flags.loop.bind == net::kAnyLocalEndpoint) {
    const auto endpoint = context.folders().Make(flags.loop.run_dir, "scheduler");
    if (!endpoint) return PrintError(kExitFailure, endpoint.error());
    flags.loop.bind = *endpoint;
  }
  flags.http.insecure = flags.insecure;
  flags.http.advertise = flags.loop.advertise;
  flags.http.run = net::RunLabel(flags.loop.run_dir);
  flags.http.role = "scheduler";
  flags.http.rank = "0";
  const auto status_server = net::StatusServer::Start(process, flags.http);
  if (!status_server) return PrintError(kExitFailure, status_server.error());
  flags.loop.feed = (*status_server)->AddFeed();
  flags.loop.http = (*status_server)->url();
  net::ZmqTransport transport(&context, {.insecure = flags.insecure, .shm = false});
  scheduler::Loop loop(std::move(flags.loop), &transport);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit then fails like one to a full disk
  process->OnSignal([&loop](int) { loop.RequestStop(); });
  const Status status = CatchLimits([&] { return loop.Run(); });
  process->OnSignal([](int) {});
  FlushLog();
  if (status) return 0;
  return PrintError(status.error().code == ErrorCode::kDiverged ? kExitDiverged : kExitFailure, status.error());
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{
      "The scheduler of a tarn fleet. It reads the job, waits for servers and workers, and coordinates the run.\n"
      "tools/launch starts complete fleets. To start it by hand:\n\n"
      "  tarn-scheduler --job job.toml --run-dir runs/mine\n\n"
      "Ctrl-C (or SIGTERM) writes a checkpoint and stops the fleet; a second one stops without the checkpoint.\n"
      "Exit status: 0 done or stopped, 1 failed, 2 bad usage or bad job, 4 training diverged."};
  auto* job = app.add_option("--job", flags.job, "job file; optional with --resume");
  app.add_option("--run-dir", flags.run_dir, "folder for logs, metrics and checkpoints; created if it does not exist")
      ->required();
  app.add_option("--set", flags.overrides, "section.key=value: overrides a key of the job file; may be repeated")
      ->allow_extra_args(false);
  auto* resume = app.add_option("--resume", flags.resume,
                                "a checkpoint to continue from, or the folder of a run: continue where its logs end, "
                                "else from its newest checkpoint");
  app.add_option("--bind", flags.loop.bind,
                 "address to listen on, tcp://HOST:PORT (port *: a free port) or ipc:///FOLDER/NAME; default: a "
                 "socket in RUN_DIR/sockets that only this user can connect to; with --keys or --insecure "
                 "tcp://127.0.0.1:*");
  app.add_option(
      "--advertise", flags.loop.advertise,
      "host in the address that other nodes use (see --port-file); default: the host of --bind, or, if that is "
      "0.0.0.0 or *, the address of the interface of the default route");
  app.add_option("--port-file", flags.loop.port_file, "file to which the address is written when it is known");
  app.add_option(
      "--keys", flags.keys,
      "key file of the fleet, made by tarn-keys: encrypts all connections and admits only holders of the file");
  app.add_flag("--insecure", flags.insecure,
               "allow TCP without keys: anyone who can connect to a port can change the job");
  net::AddStatusFlags(&app, &flags.http);
  try {
    app.parse(argc, argv);
    if (job->count() == 0 && resume->count() == 0) throw CLI::RequiredError("--job");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  int code = kExitFailure;
  const Status status = CatchLimits([&]() -> Status {
    const auto process = ProcessContext::Start({SIGINT, SIGTERM});
    if (!process) return std::unexpected(process.error());
    if (Status s = LoadAll(&flags); !s)
      code = PrintError(kExitUsage, s.error());
    else
      code = RunLoop(std::move(flags), process->get());
    return {};
  });
  return status ? code : PrintError(kExitFailure, status.error());
}

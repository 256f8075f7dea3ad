// tarn-simulate: runs a job in simulated time.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/process_limits.h"
#include "scheduler/state/resume.h"
#include "sim/trial/run_files.h"
#include "sim/trial/trial.h"

namespace {

using namespace tarn;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDiverged = 4;

std::atomic<int> signals = 0;

void OnSignal(int) {
  if (signals.fetch_add(1) > 0) _exit(kExitFailure);
}

// Returns `code`, the exit status.
int PrintError(int code, const Error& error) {
  fmt::print(stderr, "tarn-simulate: {}\n", error.message);
  return code;
}

void ShowProgress(const scheduler::Progress& progress, double simulated_seconds) {
  const double share =
      progress.samples_total > 0 ? 100.0 * double(progress.samples) / double(progress.samples_total) : 0;
  const std::string loss =
      progress.train.rows > 0 ? fmt::format(", loss {:.4f}", progress.train.LogLoss()) : std::string();
  fmt::print(stderr, "\r{}, epoch {}: {} samples ({:.0f}%), {:.2f} simulated seconds{}\x1b[K", progress.phase,
             progress.epoch + 1, progress.samples, share, simulated_seconds, loss);
}

struct Command {
  std::string job_path, run_dir;
  std::string replayed;                // folder of a recorded run of the job; empty: none
  std::optional<std::uint64_t> until;  // samples after which the recorded run is left
  std::vector<std::string> overrides;
  bool quiet = false;
};

Status RunTrial(sim::Trial* trial, bool quiet) {
  const bool shows = !quiet && isatty(STDERR_FILENO) != 0;
  sim::TrialHooks hooks;
  if (shows) hooks.progress = ShowProgress;
  hooks.stops = [] { return signals.load() > 0; };
  const Status ended = trial->Run(hooks);
  if (shows) fmt::print(stderr, "\r\x1b[K");
  return ended;
}

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Fail(ErrorCode::kIo, fmt::format("{}: cannot create this folder: {}", path, error.message()));
  return {};
}

// Repeats the recorded run, to its end or until it is left. Returns the directory of its last checkpoint.
Expected<std::string> Repeat(const Command& command, Job job, const std::string& run_dir, sim::TrialFiles* files) {
  auto recording = sim::Recording::Load(job, command.replayed);
  if (!recording) return std::unexpected(recording.error());
  TARN_RETURN_IF_ERROR(MakeFolder(run_dir));
  job.delays = {};  // the recorded order contains their effects
  auto trial = sim::Trial::Make(sim::AsTrial(job), run_dir,
                                {.recording = *std::move(recording), .until = command.until, .files = files});
  if (!trial) return std::unexpected(trial.error());
  if (const Status ended = RunTrial(trial->get(), command.quiet); !ended) return std::unexpected(ended.error());
  if (command.until && !(*trial)->replay()->left() && signals.load() == 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--until {}: expected fewer samples than the recorded run has trained", *command.until));
  if (command.quiet) return (*trial)->last_checkpoint();
  const std::vector<std::size_t> effects = (*trial)->replay()->repeated();
  fmt::print("{} effects repeated ({} of the shards). Results: {}/summary.json\n",
             std::accumulate(effects.begin(), effects.end(), std::size_t{0}), fmt::join(effects, ", "), run_dir);
  return (*trial)->last_checkpoint();
}

// Checks that a run may go on with `job` from a checkpoint of the recorded job. Another update rule is allowed, if it
// has the same state (scheduler/tables.h).
Status CheckContinues(const Command& command, Job job) {
  const auto recorded = LoadJob(command.job_path);
  if (!recorded) return std::unexpected(recorded.error());
  job.optimizer = recorded->optimizer;
  return scheduler::CheckSameJob(job, *recorded,
                                 fmt::format("the recorded run {}: with --until it must stay", command.replayed));
}

// Runs the job, from the checkpoint if one is given.
Status Simulate(const Command& command, const Job& job, sim::TrialFiles* files, const std::string& resume) {
  if (!resume.empty()) TARN_RETURN_IF_ERROR(scheduler::CheckEpochs(job, files->manifests.at(resume), resume));
  auto trial = sim::Trial::Make(sim::AsTrial(job), command.run_dir, {.files = files, .resume = resume});
  if (!trial) return std::unexpected(trial.error());
  TARN_RETURN_IF_ERROR(RunTrial(trial->get(), command.quiet));
  if (!command.quiet)
    fmt::print("{:.3f} simulated seconds. Results: {}/summary.json\n", (*trial)->simulated_seconds(), command.run_dir);
  return {};
}

Status Run(const Command& command, const Job& job) {
  TARN_RETURN_IF_ERROR(sim::RunFiles::CheckFree(command.run_dir));
  if (command.until) TARN_RETURN_IF_ERROR(CheckContinues(command, job));
  TARN_RETURN_IF_ERROR(MakeFolder(command.run_dir + "/logs"));
  TARN_RETURN_IF_ERROR(InitLog({.role = "simulate", .path = command.run_dir + "/logs/simulate.log"}));
  sim::TrialFiles files;
  if (command.replayed.empty()) return Simulate(command, job, &files, "");
  const auto recorded = LoadJob(command.job_path);
  if (!recorded) return std::unexpected(recorded.error());
  const std::string run_dir = command.until ? command.run_dir + "/start" : command.run_dir;
  const auto checkpoint = Repeat(command, *recorded, run_dir, &files);
  if (!checkpoint || !command.until || signals.load() > 0)
    return checkpoint ? Status() : std::unexpected(checkpoint.error());
  return Simulate(command, job, &files, *checkpoint);
}

}  // namespace

int main(int argc, char** argv) {
  Command command;
  CLI::App app{
      "Runs a job in simulated time: the fleet of the job in one process, with its real data and gradients. Times are\n"
      "those of the job's [delays] section, so that hundreds of workers run on one core, and every repetition gives "
      "the\n"
      "same bits. tools/lab runs many such trials and compares them.\n\n"
      "  tarn-simulate --job job.toml --run-dir runs/mine --set fleet.workers=64 --set "
      "'delays.batch=exponential(0.01)'\n\n"
      "Ctrl-C stops cleanly. Exit status: 0 done or stopped, 1 failed, 2 bad usage or bad job, 4 training diverged."};
  CLI::Option* const file = app.add_option("--job", command.job_path, "job file");
  CLI::Option* const replay =
      app.add_option("--replay", command.replayed,
                     "instead of --job: folder of a run of tools/launch --record, which is repeated to the bit")
          ->excludes(file);
  app.add_option("--until", command.until,
                 "with --replay: after this number of trained samples, leave the recorded run and continue the job in "
                 "simulated time, with the changes of --set")
      ->needs(replay);
  app.add_option("--run-dir", command.run_dir, "folder for the results: new or empty")->required();
  app.add_option("--set", command.overrides, "section.key=value: overrides a key of the job file; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--quiet", command.quiet, "print only errors");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  if (command.job_path.empty() && command.replayed.empty())
    return PrintError(kExitUsage, {ErrorCode::kInvalidArgument, "expected --job or --replay"});
  if (!command.replayed.empty() && !command.until && !command.overrides.empty())
    return PrintError(
        kExitUsage,
        {ErrorCode::kInvalidArgument,
         "--set with --replay: expected also --until, because the recorded part of the run cannot be changed"});
  if (command.job_path.empty()) command.job_path = command.replayed + "/job.toml";
  std::vector<std::string> notes;
  const auto job = LoadJob(command.job_path, command.overrides, &notes);
  for (const std::string& note : notes) fmt::print(stderr, "tarn-simulate: {}\n", note);
  if (!job) return PrintError(kExitUsage, job.error());
  Status ended;
  const Status limits = CatchLimits([&]() -> Status {
    ended = Run(command, *job);
    return {};
  });
  FlushLog();
  if (!limits) return PrintError(kExitFailure, limits.error());
  if (ended) return 0;
  return PrintError(ended.error().code == ErrorCode::kDiverged ? kExitDiverged : kExitFailure, ended.error());
}

// tarn-simulate: runs a job in simulated time.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/process_limits.h"
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

int Complain(int code, const Error& error) {
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

// `replayed`: folder of a recorded run of the job; empty: none.
int Run(const Job& job, const std::string& run_dir, const std::string& replayed, bool quiet) {
  std::optional<sim::Recording> recording;
  if (!replayed.empty()) {
    auto loaded = sim::Recording::Load(job, replayed);
    if (!loaded) return Complain(kExitUsage, loaded.error());
    recording = *std::move(loaded);
  }
  std::error_code error;
  std::filesystem::create_directories(run_dir + "/logs", error);
  if (error)
    return Complain(kExitFailure,
                    {ErrorCode::kIo, fmt::format("{}: cannot create this folder: {}", run_dir, error.message())});
  if (Status s = InitLog({.role = "simulate", .path = run_dir + "/logs/simulate.log"}); !s)
    return Complain(kExitFailure, s.error());
  Job run = sim::AsTrial(job);
  if (recording) run.delays = {};  // the recorded order contains what they did
  auto trial = sim::Trial::Make(run, run_dir, std::move(recording));
  if (!trial) return Complain(kExitFailure, trial.error());
  const bool shows = !quiet && isatty(STDERR_FILENO) != 0;
  sim::TrialHooks hooks;
  if (shows) hooks.progress = ShowProgress;
  hooks.stops = [] { return signals.load() > 0; };
  const Status ended = (*trial)->Run(hooks);
  if (shows) fmt::print(stderr, "\r\x1b[K");
  FlushLog();
  if (!ended) return Complain(ended.error().code == ErrorCode::kDiverged ? kExitDiverged : kExitFailure, ended.error());
  if (quiet) return 0;
  if (!replayed.empty())
    fmt::print("{} effects repeated. Results: {}/summary.json\n", (*trial)->repeated(), run_dir);
  else
    fmt::print("{:.3f} simulated seconds. Results: {}/summary.json\n", (*trial)->simulated_seconds(), run_dir);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path, run_dir, replayed;
  std::vector<std::string> overrides;
  bool quiet = false;
  CLI::App app{
      "Runs a job in simulated time: the fleet of the job in one process, with its real data and gradients. Times are\n"
      "those of the job's [delays] section, so that hundreds of workers run on one core, and every repetition gives "
      "the\n"
      "same bits. tools/lab runs many such trials and compares them.\n\n"
      "  tarn-simulate --job job.toml --run-dir runs/mine --set fleet.workers=64 --set "
      "'delays.batch=exponential(0.01)'\n\n"
      "Ctrl-C stops cleanly. Exit status: 0 done or stopped, 1 failed, 2 bad usage or bad job, 4 training diverged."};
  CLI::Option* const file = app.add_option("--job", path, "job file");
  CLI::Option* const replay =
      app.add_option("--replay", replayed,
                     "instead of --job: folder of a run of tools/launch --record, which is repeated to the bit");
  app.add_option("--run-dir", run_dir, "folder for the results: new or empty")->required();
  app.add_option("--set", overrides, "section.key=value: overrides a key of the job file; may be repeated")
      ->allow_extra_args(false)
      ->excludes(replay);
  file->excludes(replay);
  app.add_flag("--quiet", quiet, "print only errors");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  if (path.empty()) {
    if (replayed.empty()) return Complain(kExitUsage, {ErrorCode::kInvalidArgument, "expected --job or --replay"});
    path = replayed + "/job.toml";
  }
  std::vector<std::string> notes;
  const auto job = LoadJob(path, overrides, &notes);
  for (const std::string& note : notes) fmt::print(stderr, "tarn-simulate: {}\n", note);
  if (!job) return Complain(kExitUsage, job.error());
  int code = kExitFailure;
  const Status status = CatchLimits([&]() -> Status {
    code = Run(*job, run_dir, replayed, quiet);
    return {};
  });
  return status ? code : Complain(kExitFailure, status.error());
}

#include "sim/trial/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace tarn::sim {
namespace {

constexpr std::uint64_t kLines = 100;         // of a whole job
constexpr std::uint64_t kTurnsPerCheck = 16;  // a check copies the progress, which is large

}  // namespace

Status RunFiles::CheckFree(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {"job.toml", "metrics.jsonl", "summary.json"})
    if (const std::string path = folder + "/" + name; std::filesystem::exists(path, ignored))
      return Fail(ErrorCode::kAlreadyExists,
                  fmt::format("{}: a run is in this folder already: expected a new or empty folder", path));
  return {};
}

Expected<RunFiles> RunFiles::Open(const Job& job, const std::string& folder) {
  TARN_RETURN_IF_ERROR(CheckFree(folder));
  TARN_RETURN_IF_ERROR(WriteFileAtomic(folder + "/job.toml", ToToml(job)));
  auto metrics = MetricsFile::Open(folder + "/metrics.jsonl");
  if (!metrics) return std::unexpected(metrics.error());
  return RunFiles(job, folder, *std::move(metrics));
}

void RunFiles::OnProgress(const scheduler::Scheduler& scheduler, TimeUs now) {
  if (!status_ || ++turns_ % kTurnsPerCheck != 0) return;
  const scheduler::Progress progress = scheduler.progress();
  if (progress.samples < next_samples_ || progress.samples_total == 0) return;
  next_samples_ = progress.samples + std::max<std::uint64_t>(1, progress.samples_total / kLines);
  status_ = Append(progress, double(now) * 1e-6);
}

Status RunFiles::Append(const scheduler::Progress& progress, double seconds) {
  rate_.Add(seconds, progress);
  std::vector<std::string> lines = worker_lines_.Make(progress, seconds);
  lines.push_back(scheduler::MetricsLine(progress, scheduler::SchedulerMetrics(job_, progress, rate_), seconds));
  for (const std::string& line : lines) TARN_RETURN_IF_ERROR(metrics_.Append(line));
  return {};
}

Status RunFiles::End(const scheduler::Progress& progress, const Shutdown& reason, const TrialFigures& figures,
                     const LearningCurve& curve) {
  TARN_RETURN_IF_ERROR(Append(progress, figures.simulated_seconds));
  TARN_RETURN_IF_ERROR(WriteFileAtomic(folder_ + "/curve.csv", curve.csv()));
  Json summary = Json::parse(scheduler::SummaryJson(job_, progress, reason));
  summary["simulated"] = {{"seconds", figures.simulated_seconds},
                          {"messages", figures.messages},
                          {"bytes", figures.bytes},
                          {"events", figures.events}};
  return WriteFileAtomic(folder_ + "/summary.json", JsonText(summary, 2) + "\n");
}

}  // namespace tarn::sim

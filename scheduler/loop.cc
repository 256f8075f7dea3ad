#include "scheduler/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "net/advertise.h"
#include "net/local_endpoint.h"

namespace tarn::scheduler {
namespace {

constexpr std::size_t kReceiveMax = 256;
constexpr TimeUs kMetricsPeriodUs = 1'000'000;
constexpr int kStopsToExit = 3;  // requests to stop after which the loop ends at once

double UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) * 1e-3;
}

}  // namespace

std::string AddressFile(const std::string& run_dir) { return net::AddressFile(run_dir); }

Loop::Loop(LoopOptions options, net::Transport* transport) : options_(std::move(options)), transport_(transport) {
  const std::string checkpoints = options_.run_dir + "/checkpoints";
  store_ = std::make_unique<FileStore>(&disk_, options_.run_dir, checkpoints, [this] { transport_->Wake(); });
  SchedulerOptions scheduler;
  scheduler.job = options_.job;
  scheduler.job_text = ToToml(options_.job);
  scheduler.checkpoints_directory = checkpoints;
  scheduler.resume = options_.resume ? &*options_.resume : nullptr;
  scheduler.resume_directory = options_.resume_directory;
  scheduler.run = options_.run;
  scheduler.first_incarnation = options_.first_incarnation;
  scheduler.restore = options_.restore ? &*options_.restore : nullptr;
  scheduler.http = options_.http;
  PrepareRunDirectory(&scheduler);
  scheduler_ = std::make_unique<Scheduler>(std::move(scheduler), store_.get());
}

Loop::~Loop() = default;

// Cleans up the run directory after an earlier start: removes unfinished files, incomplete checkpoints and old logs.
// Sets the options that list the existing checkpoints.
void Loop::PrepareRunDirectory(SchedulerOptions* scheduler) {
  for (const std::string& path :
       {options_.run_dir + "/" + kStateName, options_.run_dir + "/job.toml", AddressFile(options_.run_dir)})
    RemoveUnfinished(path);
  std::error_code ignored;
  std::filesystem::remove(AddressFile(options_.run_dir), ignored);  // of a process that was killed
  store_->RemoveAddresses();
  store_->RemoveOldLogs(options_.run);
  const auto found = ListCheckpoints(options_.run_dir);
  if (!found) return;
  for (const CheckpointDirectory& checkpoint : *found) {
    scheduler->last_checkpoint = checkpoint.id;
    if (checkpoint.has_manifest) scheduler->kept_checkpoints.push_back(checkpoint.path);
  }
  store_->RemovePartial();
}

TimeUs Loop::Now() const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

Status Loop::Run() {
  TARN_RETURN_IF_ERROR(Begin());
  while (!scheduler_->stopped() && stops_seen_ < kStopsToExit) Step();
  return End();
}

Status Loop::Begin() {
  auto endpoint = transport_->Bind(options_.bind);
  if (!endpoint) return std::unexpected(endpoint.error());
  const auto advertised = net::AdvertisedEndpoint(*endpoint, options_.advertise, "");
  if (!advertised) return std::unexpected(advertised.error());
  TARN_RETURN_IF_ERROR(WriteFileAtomic(options_.run_dir + "/job.toml", ToToml(options_.job)));
  auto metrics = MetricsWriter::Open(&disk_, options_.run_dir + "/metrics.jsonl");
  if (!metrics) return std::unexpected(metrics.error());
  metrics_ = *std::move(metrics);
  LogInfo("job '{}': {} servers x {} shards, {} workers, {}; listening on {}, reached at {}", options_.job.job.name,
          options_.job.fleet.servers, options_.job.fleet.shards, options_.job.fleet.workers,
          Name(options_.job.consistency.mode), *endpoint, *advertised);
  if (options_.resume)
    LogInfo("resumes checkpoint {} at clock {}, epoch {}: {}", options_.resume->id.value,
            options_.resume->resume_clock.value, EpochNumber(options_.resume->data.epoch), options_.resume_directory);
  if (options_.resume && options_.resume->epochs.size() >= options_.job.train.epochs)
    LogAndPrint(LogLevel::kWarning, "tarn-scheduler",
                fmt::format("nothing to train: all {} epochs are done; increase train.epochs to continue",
                            options_.job.train.epochs));
  TARN_RETURN_IF_ERROR(WriteFileAtomic(AddressFile(options_.run_dir), *advertised + "\n"));
  scheduler_->Start(Now());
  scheduler_->OnTimer(Now(), &outbox_);
  store_->Drain();  // the state is durable before the first message is received
  HandleCompletedWrites();
  if (!options_.port_file.empty()) TARN_RETURN_IF_ERROR(WriteFileAtomic(options_.port_file, *advertised + "\n"));
  next_metrics_ = Now();
  return {};
}

void Loop::Step() {
  const std::int64_t until = std::min(scheduler_->NextTimer(), next_metrics_) - Now();
  received_.clear();
  transport_->Receive(&received_, kReceiveMax, std::max<std::int64_t>(until, 0));
  for (net::Received& received : received_) scheduler_->Handle(received.from, std::move(received.message), Now());
  scheduler_->Settle(Now(), &outbox_);
  HandleCompletedWrites();
  HandleStops();
  if (const TimeUs now = Now(); now >= scheduler_->NextTimer()) scheduler_->OnTimer(now, &outbox_);
  Flush();
  if (Now() >= next_metrics_) WriteMetrics();
}

bool Loop::HandleCompletedWrites() {
  const std::vector<StoreWritten> all = store_->TakeWritten();
  for (const StoreWritten& written : all) scheduler_->OnWritten(written, Now(), &outbox_);
  return !all.empty();
}

void Loop::HandleStops() {
  const int stops = stops_.load(std::memory_order_relaxed);
  for (; stops_seen_ < stops; ++stops_seen_) {
    LogInfo("received a request to stop ({})", stops_seen_ + 1);
    scheduler_->RequestStop(Now(), &outbox_);
  }
}

// Notes are logged before messages are sent, so that after a crash the log explains what nodes have received.
void Loop::Flush() {
  const std::vector<Note> notes = scheduler_->TakeNotes();
  for (const Note& note : notes) {
    if (!note.warning) {
      LogInfo("{}", note.text);
      continue;
    }
    LogAndPrint(LogLevel::kWarning, "tarn-scheduler", note.text);
  }
  if (!notes.empty()) FlushLog();
  transport_->Send(outbox_);
  outbox_.clear();
}

void Loop::WriteMetrics() {
  next_metrics_ = Now() + kMetricsPeriodUs;
  const Progress progress = scheduler_->progress();
  rate_.Add(static_cast<double>(Now()) * 1e-6, progress);
  const double time = UnixSeconds();
  std::vector<std::string> lines = worker_lines_.Make(progress, time);
  auto report = std::make_unique<StatusReport>(StatusReport{
      .role = "scheduler", .rank = "0", .ready = progress.phase != "waiting", .unix_seconds = time, .metrics = {}});
  report->metrics = SchedulerMetrics(options_.job, progress, rate_);
  report->metrics.AddFields(net::kTransportMetrics, transport_->counters());
  lines.push_back(MetricsLine(progress, report->metrics, time));
  metrics_->Append(std::move(lines));
  if (options_.feed != nullptr) options_.feed->Put(std::move(report));
}

Status Loop::End() {
  WriteMetrics();
  do store_->Drain();  // handling the end of a write may start another one
  while (HandleCompletedWrites());
  Flush();
  // Shards may have begun parts of checkpoints that the scheduler does not know of. If the nodes were not stopped,
  // shards may still be writing these, so they are kept.
  if (scheduler_->stopped()) store_->RemovePartial();
  std::error_code ignored;
  std::filesystem::remove(AddressFile(options_.run_dir), ignored);
  net::RemoveSockets(options_.run_dir, false);
  const Progress progress = scheduler_->progress();
  Shutdown reason = scheduler_->stop_reason();
  if (!scheduler_->stopping())
    reason = {.code = ErrorCode::kCancelled, .reason = "exits at once; the nodes of the fleet are not notified"};
  if (reason.code == ErrorCode::kOk)
    LogInfo("{}: {} samples in {:.1f} s", progress.phase, progress.samples, progress.seconds);
  else
    LogError("{}: {}", progress.phase, reason.reason);
  const Status written =
      WriteFileAtomic(options_.run_dir + "/summary.json", SummaryJson(options_.job, progress, reason));
  if (reason.code != ErrorCode::kOk) return Fail(reason.code, reason.reason);
  TARN_RETURN_IF_ERROR(written);
  return store_->RemoveEndedState();
}

}  // namespace tarn::scheduler

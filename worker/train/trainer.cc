#include "worker/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"

namespace tarn::worker {
namespace {

constexpr TimeUs kReportPeriodUs = 1'000'000;
constexpr TimeUs kReportEndUsMax = 10'000'000;  // for an answer to the report of an error that has ended the client

}  // namespace

Trainer::Trainer(TrainerOptions options, net::Transport* transport)
    : options_(std::move(options)),
      runtime_({.rank = options_.rank, .nonce = options_.nonce, .http = options_.http, .shm = options_.shm}, transport),
      loop_({.client = &runtime_.client(), .outbox = runtime_.outbox(), .trace = &trace_, .record = &record_},
            options_.pipeline,
            {.wake = [this] { runtime_.Wake(); },
             .report = [this](const MetricList& metrics, bool last) { Publish(metrics, last); }}),
      joining_(options_.scheduler, options_.join_seconds_max) {}

TrainerEnd Trainer::Run() {
  Status status;
  if (!options_.record.empty()) status = record_.Open(options_.record);
  if (status) status = runtime_.Start(options_.scheduler);
  while (status && !abort_ && InFleet()) status = RoundWithinMemory();
  if (status && !abort_ && client().ended_by_error()) ReportEnd();
  loop_.StopOpening();
  if (const Status recorded = RecordTicks(); !recorded && status) status = recorded;
  runtime_.Act();  // sends the answer to Shutdown (rule S1), and ticks of the last turn
  WriteTrace();
  return HowItEnded(status);
}

bool Trainer::InFleet() const {
  return client().state() == ClientState::kJoining || client().state() == ClientState::kRunning;
}

// A batch may exceed the memory of this machine.
Status Trainer::RoundWithinMemory() {
  try {
    return Round();
  } catch (const std::bad_alloc&) {
    loop_.FailJob({ErrorCode::kTooLarge, kNoMemoryForBatches}, Now());
    return {};
  }
}

// Returns an error only if the scheduler cannot be reached. All others are reported to it (FailJob).
Status Trainer::Round() {
  TARN_RETURN_IF_ERROR(TakeTurn());
  if (!InFleet()) return {};
  if (client().scheduler().answered()) answered_ = true;
  if (client().state() == ClientState::kJoining) return joining_.Check(client().scheduler().Silence(Now()));
  loop_.Turn(Now());
  return {};
}

// Reports the error that has ended the client until the scheduler stops the fleet (rule S2).
void Trainer::ReportEnd() {
  const Shutdown reason = client().stop_reason();
  const TimeUs until = Now() + kReportEndUsMax;
  loop_.FailJob({reason.code, reason.reason}, Now());
  while (!abort_ && client().ended_by_error() && Now() < until) {
    loop_.Turn(Now());  // repeats the report
    runtime_.Act();
    runtime_.Exchange(Runtime::kWaitMaxUs);
  }
}

// One file per incarnation, because a worker may start again; tools/launch merges the files of all workers.
void Trainer::WriteTrace() const {
  const Welcome& welcome = client().welcome();
  if (options_.run_dir.empty() || welcome.incarnation.value == 0) return;
  const std::string path =
      fmt::format("{}/logs/trace-worker-{}-{}.json", options_.run_dir, welcome.rank, welcome.incarnation.value);
  if (Status s = trace_.Write(path, welcome.rank); !s) LogWarning("{}", s.error().message);
}

TrainerEnd Trainer::HowItEnded(const Status& status) {
  const Shutdown& reason = client().stop_reason();
  if (client().state() == ClientState::kFenced) {
    error_ = {ErrorCode::kFenced, "the scheduler has declared this worker dead: start it again"};
    return TrainerEnd::kFenced;
  }
  if (loop_.failed()) {
    error_ = loop_.error();
  } else if (!status) {
    error_ = status.error();
  } else if (InFleet()) {
    error_ = {ErrorCode::kCancelled, "terminated by a signal before the job was over"};
  } else if (reason.code == ErrorCode::kOk) {
    return TrainerEnd::kDone;
  } else {
    error_ = {reason.code, reason.reason};
  }
  return TrainerEnd::kFailed;
}

TimeUs Trainer::WaitUs() const {
  const TimeUs now = Now();
  if (loop_.CanWork(now)) return 0;
  const std::optional<TimeUs> due = loop_.NextDue();
  return due ? std::max<TimeUs>(*due - now, 0) : Runtime::kWaitMaxUs;
}

Status Trainer::TakeTurn() {
  if (Status recorded = RecordTicks(); !recorded) loop_.FailJob(recorded.error(), Now());
  if (!runtime_.Act()) {
    if (!InFleet()) return {};                                                    // it was stopped
    TARN_RETURN_IF_ERROR(client().scheduler().Check(Now(), options_.scheduler));  // there is no fleet to notify
    loop_.FailJob(runtime_.error(), Now());
  }
  const TimeUs wait = WaitUs();
  runtime_.Exchange(wait);
  if (wait > 0) loop_.CountWait(double(runtime_.waited_us()) * 1e-6);
  return {};
}

// Records the ticks that the next turn sends.
Status Trainer::RecordTicks() {
  if (!record_.open()) return {};
  for (const Outgoing& o : *runtime_.outbox())
    if (const auto* tick = std::get_if<Tick>(&o.message.body))
      TARN_RETURN_IF_ERROR(record_.Tick(client().welcome().incarnation, tick->clock));
  return {};
}

// Publishes on the HTTP server, at most once a second.
void Trainer::Publish(const MetricList& metrics, bool last) {
  const TimeUs now = Now();
  if (options_.feed == nullptr || (now < next_report_ && !last)) return;
  next_report_ = now + kReportPeriodUs;
  const std::chrono::duration<double> unix_time = std::chrono::system_clock::now().time_since_epoch();
  auto report = std::make_unique<StatusReport>(StatusReport{.role = "worker",
                                                            .rank = std::to_string(client().welcome().rank),
                                                            .ready = true,
                                                            .unix_seconds = unix_time.count(),
                                                            .metrics = {}});
  report->metrics.Add(WorkerMetric("clock"), client().clock().value)
      .Add(WorkerMetric("acked_clock"), client().acked_clock().value)
      .AddFields(kClientMetrics, client().counters())
      .Append(metrics)
      .AddHistogram(WorkerMetric("staleness_clocks"), client().staleness());
  options_.feed->Put(std::move(report));
}

}  // namespace tarn::worker

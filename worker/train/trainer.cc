#include "worker/train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/thread_time.h"

namespace tarn::worker {
namespace {

constexpr TimeUs kMetricsPeriodUs = 500'000, kReportPeriodUs = 1'000'000;

}  // namespace

Trainer::Trainer(TrainerOptions options, net::Transport* transport)
    : options_(std::move(options)),
      runtime_({.rank = options_.rank, .nonce = options_.nonce, .http = options_.http}, transport),
      joining_(options_.scheduler, options_.join_seconds_max) {}

TrainerEnd Trainer::Run() {
  Status going;
  if (!options_.record.empty()) going = record_.Open(options_.record);
  if (going) going = runtime_.Start(options_.scheduler);
  while (going && !abort_ && InFleet()) going = RoundWithinMemory();
  job_.StopOpening();
  runtime_.Act();  // sends the answer to Shutdown (rule S1)
  WriteTrace();
  return HowItEnded(going);
}

bool Trainer::InFleet() const {
  return client().state() == ClientState::kJoining || client().state() == ClientState::kRunning;
}

// A batch may be larger than this machine.
Status Trainer::RoundWithinMemory() {
  try {
    return Round();
  } catch (const std::bad_alloc&) {
    FailJob({ErrorCode::kTooLarge, kNoMemoryForBatches});
    return {};
  }
}

// An error: the scheduler cannot be reached.
Status Trainer::Round() {
  TARN_RETURN_IF_ERROR(TakeTurn());
  if (!InFleet()) return {};
  if (client().state() == ClientState::kJoining) return joining_.Check(client().SchedulerSilence(Now()));
  SendFailure();
  if (failure_) return {};
  if (Status status = TakeLeases(); !status) FailJob(status.error());
  if (Status status = Prepare(); !status) FailJob(status.error());
  if (pipeline_ == nullptr || failure_) return {};
  if (Status status = TurnPipeline(); !status) FailJob(status.error());
  if (!failure_) AskForWork();
  if (Now() >= next_metrics_) ReportMetrics();
  return {};
}

// Takes the next step towards the first batch, if it can be taken now.
Status Trainer::Prepare() {
  if (!job_.begun()) return Begin();
  const Expected<bool> opened = job_.TakeOpened();
  if (!opened) return std::unexpected(opened.error());
  if (*opened) return CreateTables();
  TARN_RETURN_IF_ERROR(job_.table_status());
  if (job_.tables_ready() && pipeline_ == nullptr) return MakePipeline();
  return {};
}

Status Trainer::Begin() {
  return job_.Begin(client().welcome().job_text, [this] { runtime_.Wake(); });
}

Status Trainer::CreateTables() {
  TARN_RETURN_IF_ERROR(job_.MakeModel());
  for (const TableUse& use : job_.uses()) client().CreateTable(use.spec, &job_, Now(), runtime_.outbox());
  LogInfo("worker {} starts at clock {}: {} training rows, {} tables", client().welcome().rank, client().clock().value,
          job_.rows()[0], job_.uses().size());
  return {};
}

Status Trainer::MakePipeline() {
  auto pipeline =
      Pipeline::Make({.job = &job_, .runtime = &runtime_, .trace = &trace_, .record = &record_, .counts = &counts_},
                     options_.pipeline, [this] { runtime_.Wake(); });
  if (!pipeline) return std::unexpected(pipeline.error());
  pipeline_ = std::move(*pipeline);
  return {};
}

Status Trainer::TurnPipeline() {
  if (auto error = pipeline_->reader_error()) return std::unexpected(*error);
  TARN_RETURN_IF_ERROR(pipeline_->Fill(Now()));
  if (pipeline_->CanStart()) TARN_RETURN_IF_ERROR(pipeline_->Start());
  if (!pipeline_->CanFinish()) return {};
  Expected<std::optional<FinishedLease>> lease = pipeline_->Finish(Now());
  if (!lease) return std::unexpected(lease.error());
  if (*lease) leases_.OnFinished(std::move(**lease));
  return {};
}

// A file for each incarnation: tools/launch joins those of workers that were started again.
void Trainer::WriteTrace() const {
  const Welcome& welcome = client().welcome();
  if (options_.run_dir.empty() || welcome.incarnation.value == 0) return;
  const std::string path =
      fmt::format("{}/logs/trace-worker-{}-{}.json", options_.run_dir, welcome.rank, welcome.incarnation.value);
  if (Status s = trace_.Write(path, welcome.rank); !s) LogWarning("{}", s.error().message);
}

TrainerEnd Trainer::HowItEnded(const Status& going) {
  const Shutdown& reason = client().stop_reason();
  if (client().state() == ClientState::kFenced) {
    error_ = {ErrorCode::kFenced, "this worker was declared dead; it must join anew"};
    return TrainerEnd::kFenced;
  }
  if (failure_) {
    error_ = failure_.error();
  } else if (!going) {
    error_ = going.error();
  } else if (InFleet()) {
    error_ = {ErrorCode::kCancelled, "terminated by a signal before the job was over"};
  } else if (reason.code == ErrorCode::kOk) {
    return TrainerEnd::kDone;
  } else {
    error_ = {reason.code, reason.reason};
  }
  return TrainerEnd::kFailed;
}

// How long the next Receive may wait.
TimeUs Trainer::WaitUs() const {
  const bool busy = !failure_ && pipeline_ != nullptr && (pipeline_->CanStart() || pipeline_->CanFinish());
  return busy ? 0 : Runtime::kWaitMaxUs;
}

Status Trainer::TakeTurn() {
  if (Status recorded = RecordTicks(); !recorded) FailJob(recorded.error());
  if (!runtime_.Act()) {
    if (!InFleet()) return {};                                                 // it was stopped
    TARN_RETURN_IF_ERROR(client().CheckScheduler(Now(), options_.scheduler));  // there is no fleet to notify
    FailJob(runtime_.error());
  }
  const TimeUs wait = WaitUs();
  runtime_.Exchange(wait);
  const double seconds = double(runtime_.waited_us()) * 1e-6;
  if (wait > 0 && counts_.times.started() && !leases_.finished() && !pipeline_->computes())
    (pipeline_->empty() ? counts_.times.await_data : counts_.times.await_rows) += seconds;
  return {};
}

// Those that the next turn sends.
Status Trainer::RecordTicks() {
  if (!record_.open()) return {};
  for (const Outgoing& o : *runtime_.outbox())
    if (const auto* tick = std::get_if<Tick>(&o.message.body))
      TARN_RETURN_IF_ERROR(record_.Tick(client().welcome().incarnation, tick->clock));
  return {};
}

void Trainer::FailJob(Error error) {
  if (!failure_.Set(std::move(error))) return;
  LogError("{}", ToString(failure_.error()));
  SendFailure();
}

// The scheduler stops the fleet and answers with Shutdown; the report is repeated until then.
void Trainer::SendFailure() {
  auto report = failure_.TakeReport(Now());
  if (!report) return;
  Message message;
  message.job = client().job();  // the trainer may not have looked at it yet
  message.sender = {Role::kWorker, client().welcome().rank, client().welcome().incarnation};
  message.body = *std::move(report);
  runtime_.outbox()->push_back({kSchedulerPeer, std::move(message)});
}

Status Trainer::TakeLeases() {
  leases_.OnTickAcknowledged(client().acked_clock());
  TARN_RETURN_IF_ERROR(lease_answer_.status);
  const std::optional<LeaseReply> reply = std::exchange(lease_answer_.reply, std::nullopt);
  if (!reply) return {};
  if (!reply->grants.empty()) counts_.times.Start();
  for (const LeaseGrant& grant : reply->grants) pipeline_->AddLease(grant);
  leases_.OnReply(*reply);
  return {};
}

void Trainer::AskForWork() {
  const bool drained = pipeline_->drained();
  if (const auto clock = leases_.TakeJump(drained)) pipeline_->JumpTo(*clock, Now());
  switch (leases_.TakeNext(pipeline_->leases_held(), drained)) {
    case LeaseProgress::Next::kNothing: return;
    case LeaseProgress::Next::kRequest:
      return client().RequestLeases(leases_.MakeRequest(job_.rows()), &lease_answer_, Now(), runtime_.outbox());
    case LeaseProgress::Next::kLeave:
      next_report_ = 0;  // the last one is of the whole run
      ReportMetrics();
      return client().Leave(nullptr, Now(), runtime_.outbox());
  }
}

void Trainer::ReportMetrics() {
  next_metrics_ = Now() + kMetricsPeriodUs;
  MetricList metrics = counts_.Metrics(ThreadCpuSeconds());
  metrics.Append(pipeline_->Metrics());
  if (options_.feed != nullptr) Publish(metrics);
  client().SetMetrics(std::move(metrics));
}

// Publishes on the HTTP server, at most once a second.
void Trainer::Publish(const MetricList& metrics) {
  const TimeUs now = Now();
  if (now < next_report_) return;
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

#include "worker/train/training_loop.h"

#include <utility>

#include "core/log.h"
#include "core/thread_time.h"

namespace tarn::worker {
namespace {

constexpr TimeUs kMetricsPeriodUs = 500'000;

}  // namespace

TrainingLoop::TrainingLoop(const Context& context, const PipelineOptions& options, Hooks hooks)
    : context_(context), options_(options), hooks_(std::move(hooks)) {}

TrainingLoop::~TrainingLoop() = default;

void TrainingLoop::Turn(TimeUs now) {
  SendFailure(now);
  if (failure_) return;
  if (Status status = Advance(now); !status) return FailJob(status.error(), now);
  if (pipeline_ != nullptr && now >= next_metrics_) ReportMetrics(now, false);
}

Status TrainingLoop::Advance(TimeUs now) {
  TARN_RETURN_IF_ERROR(TakeLeases());
  TARN_RETURN_IF_ERROR(Prepare(now));
  if (pipeline_ == nullptr) return {};
  TARN_RETURN_IF_ERROR(TurnPipeline(now));
  RequestWork(now);
  return {};
}

// Takes the next step towards the first batch, if it can be taken now.
Status TrainingLoop::Prepare(TimeUs now) {
  if (pipeline_ != nullptr) return {};
  if (!job_.begun()) TARN_RETURN_IF_ERROR(Begin());
  const Expected<bool> opened = job_.TakeOpened();
  if (!opened) return std::unexpected(opened.error());
  if (*opened) return CreateTables(now);
  TARN_RETURN_IF_ERROR(job_.table_status());
  if (job_.tables_ready()) return MakePipeline();
  return {};
}

Status TrainingLoop::Begin() {
  if (context_.shared == nullptr) return job_.Begin(client().welcome().job_text, hooks_.wake);
  job_.Share(*context_.shared);
  return {};
}

Status TrainingLoop::CreateTables(TimeUs now) {
  TARN_RETURN_IF_ERROR(job_.MakeModel());
  for (const TableUse& use : job_.uses()) client().CreateTable(use.spec, &job_, now, context_.outbox);
  LogInfo("worker {} starts at clock {}: {} training rows, {} tables", client().welcome().rank, client().clock().value,
          job_.rows()[0], job_.uses().size());
  return {};
}

Status TrainingLoop::MakePipeline() {
  auto pipeline = Pipeline::Make({.job = &job_,
                                  .client = context_.client,
                                  .outbox = context_.outbox,
                                  .trace = context_.trace,
                                  .record = context_.record,
                                  .counts = &counts_,
                                  .reader_thread = context_.shared == nullptr},
                                 options_, hooks_.wake);
  if (!pipeline) return std::unexpected(pipeline.error());
  pipeline_ = std::move(*pipeline);
  return {};
}

Status TrainingLoop::TurnPipeline(TimeUs now) {
  finished_one_ = false;
  if (auto error = pipeline_->reader_error()) return std::unexpected(*error);
  TARN_RETURN_IF_ERROR(pipeline_->Fill(now));
  if (pipeline_->CanStart()) TARN_RETURN_IF_ERROR(pipeline_->Start(now));
  if (!pipeline_->CanFinish(now)) return {};
  Expected<std::optional<FinishedLease>> lease = pipeline_->Finish(now);
  if (!lease) return std::unexpected(lease.error());
  if (*lease) leases_.OnFinished(std::move(**lease));
  finished_one_ = true;
  return {};
}

bool TrainingLoop::CanWork(TimeUs now) const {
  return !failure_ && pipeline_ != nullptr && (finished_one_ || pipeline_->CanStart() || pipeline_->CanFinish(now));
}

std::optional<TimeUs> TrainingLoop::NextDue() const {
  return failure_ || pipeline_ == nullptr ? std::nullopt : pipeline_->NextDue();
}

void TrainingLoop::CountWait(double seconds) {
  if (pipeline_ == nullptr || !counts_.times.started() || leases_.finished() || pipeline_->computes()) return;
  (pipeline_->empty() ? counts_.times.await_data : counts_.times.await_rows) += seconds;
}

void TrainingLoop::FailJob(Error error, TimeUs now) {
  if (!failure_.Set(std::move(error))) return;
  LogError("{}", ToString(failure_.error()));
  SendFailure(now);
}

// The scheduler stops the fleet and answers with Shutdown; the report is repeated until then.
void TrainingLoop::SendFailure(TimeUs now) {
  auto report = failure_.TakeReport(now);
  if (!report) return;
  Message message;
  message.job = client().job();  // not that of job_, which may not be parsed yet
  message.sender = {Role::kWorker, client().welcome().rank, client().welcome().incarnation};
  message.body = *std::move(report);
  context_.outbox->push_back({kSchedulerPeer, std::move(message)});
}

Status TrainingLoop::TakeLeases() {
  leases_.OnTickAcknowledged(client().acked_clock());
  TARN_RETURN_IF_ERROR(lease_answer_.status);
  const std::optional<LeaseReply> reply = std::exchange(lease_answer_.reply, std::nullopt);
  if (!reply) return {};
  if (!reply->grants.empty()) counts_.times.Start();
  for (const LeaseGrant& grant : reply->grants) {
    TARN_RETURN_IF_ERROR(context_.record->Lease(client().welcome().incarnation, grant.lease));
    pipeline_->AddLease(grant);
  }
  leases_.OnReply(*reply);
  return {};
}

void TrainingLoop::RequestWork(TimeUs now) {
  const bool drained = pipeline_->drained();
  if (const auto clock = leases_.TakeJump(drained)) pipeline_->JumpTo(*clock, now);
  switch (leases_.TakeNext(pipeline_->leases_held(), drained)) {
    case LeaseProgress::Next::kNothing: return;
    case LeaseProgress::Next::kRequest:
      return client().RequestLeases(leases_.MakeRequest(job_.rows()), &lease_answer_, now, context_.outbox);
    case LeaseProgress::Next::kLeave: ReportMetrics(now, true); return client().Leave(nullptr, now, context_.outbox);
  }
}

void TrainingLoop::ReportMetrics(TimeUs now, bool last) {
  next_metrics_ = now + kMetricsPeriodUs;
  MetricList metrics = counts_.Metrics(ThreadCpuSeconds());
  metrics.Append(pipeline_->Metrics());
  if (hooks_.report) hooks_.report(metrics, last);
  client().SetMetrics(std::move(metrics));
}

}  // namespace tarn::worker

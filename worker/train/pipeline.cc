#include "worker/train/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "core/thread_time.h"
#include "worker/train/divergence.h"

namespace tarn::worker {

Pipeline::Pipeline(const Context& context, const PipelineOptions& options)
    : context_(context),
      waiting_bytes_max_(options.waiting_bytes_max),
      begins_(options.begins),
      delays_(context.job->job(), client().welcome().rank),
      next_clock_(client().clock()) {}

Expected<std::unique_ptr<Pipeline>> Pipeline::Make(const Context& context, const PipelineOptions& options,
                                                   std::function<void()> wake) {
  const TrainingJob& job = *context.job;
  Client& client = *context.client;
  std::unique_ptr<Pipeline> pipeline(new Pipeline(context, options));
  StepperOptions stepper_options = options.stepper;
  stepper_options.rank = client.welcome().rank;
  stepper_options.done = wake;
  if (!context.reader_thread) stepper_options.long_step_seconds = StepperOptions::kNeverLong;
  auto stepper = Stepper::Make(job.job(), job.model(), stepper_options);
  if (!stepper) return std::unexpected(stepper.error());
  pipeline->stepper_ = std::move(*stepper);

  const std::uint32_t bits = client.view().routes.partition_bits;
  auto pulls = PullStage::Make(job.job(), job.uses(), bits, &client, context.trace);
  if (!pulls) return std::unexpected(pulls.error());
  pipeline->pulls_ = std::move(*pulls);
  BatchPlanner planner(job.job(), job.uses(),
                       {.partition_bits = bits,
                        .gpu = GpuFor(job.job().train, client.welcome().rank),
                        .device_keys_min = options.device_plan_keys_min});
  pipeline->source_ = std::make_unique<BatchSource>(
      job.job(), job.datasets(), std::move(planner), context.trace, std::move(wake),
      context.reader_thread ? BatchSource::Reader::kThread : BatchSource::Reader::kCaller);
  return pipeline;
}

Pipeline::~Pipeline() = default;

Status Pipeline::Fill(TimeUs now) {
  TARN_RETURN_IF_ERROR(pulls_->status());
  TARN_RETURN_IF_ERROR(failures_.status);
  const std::size_t depth = 1 + context_.job->job().train.prefetch;
  while (window_.size() < depth) {
    source_->ReadIfCaller();
    const auto purpose = source_->NextPurpose();
    if (!purpose) break;
    // Evaluation uses one clock and does not overlap with training.
    const bool train = *purpose == LeasePurpose::kTrain;
    if (!window_.empty() && train != window_.back().train()) break;
    if (train && !MayBegin()) break;
    InFlight& batch = window_.emplace_back();
    batch.prepared = std::move(*source_->TryTake());
    const Clock use = train ? std::max(next_clock_, client().clock()) : client().clock();
    if (train) {
      next_clock_ = use + 1;
      TARN_RETURN_IF_ERROR(context_.record->Begin(client().welcome().incarnation, pulls_->ended()));
    }
    TARN_RETURN_IF_ERROR(pulls_->Begin(batch.prepared.plans, use, train, now, outbox(), &batch.rows));
  }
  if (context_.job->job().storage.memory != 0) StageNext(now);
  return {};
}

bool Pipeline::BeginsNow() const {
  const std::uint64_t begun = pulls_->begun();
  return begun < begins_->pushed.size() && begins_->pushed[begun] == pulls_->ended();
}

// In a repeated run, the oldest training batch is not pushed as long as the recording has the next one begin before
// that push; the next one may not be read yet, because its lease has not arrived.
bool Pipeline::MayFinish() const {
  return stepper_->Done() && (!Repeats() || !window_.front().train() || !BeginsNow());
}

// Asks servers that store rows on disk to read those of the batch that will be pulled next.
void Pipeline::StageNext(TimeUs now) {
  const PreparedBatch* next = source_->Next();
  if (next == nullptr) return;
  const std::pair which(next->lease.lease, next->after.rows);
  if (std::exchange(staged_, which) == which) return;
  const std::span<const TableUse> uses = context_.job->uses();
  for (std::size_t t = 0; t < uses.size(); ++t)
    if (uses[t].rows != RowsNeeded::kAll) client().Prefetch(next->plans[t], now, outbox());
}

bool Pipeline::CanStart() const {
  if (stepper_->steps() == stepper_->steps_max() || stepper_->steps() >= window_.size()) return false;
  const InFlight& next = window_[stepper_->steps()];
  if (!next.rows.ready()) return false;
  // Bounds the unacknowledged pushes: where all rows are cached, training never waits for a reply.
  return !next.train() || client().pending_bytes() <= waiting_bytes_max_;
}

std::optional<TimeUs> Pipeline::NextDue() const {
  return MayFinish() ? std::optional(window_.front().due) : std::nullopt;
}

Status Pipeline::Start(TimeUs now) {
  InFlight& batch = window_[stepper_->steps()];
  if (batch.train()) batch.due = now + delays_.Next(batch.prepared.batch.rows);
  const double cpu_before = ThreadCpuSeconds();
  batch.started_at = Trace::SteadyClock::now();
  TARN_RETURN_IF_ERROR(pulls_->Read(&batch.rows, stepper_->stream()));
  context_.counts->compute_cpu_seconds += ThreadCpuSeconds() - cpu_before;
  return stepper_->Start(batch.prepared.batch, batch.rows.plans, batch.rows.values, batch.train(), &lease_quality_,
                         batch.rows.placed);
}

Expected<std::optional<FinishedLease>> Pipeline::Finish(TimeUs now) {
  auto result = stepper_->Finish();
  if (!result) return std::unexpected(result.error());
  if (!std::isfinite(result->counted.loss_sum)) return std::unexpected(Divergence(window_.front()));
  TrainingCounts& counts = *context_.counts;
  counts.compute_cpu_seconds += result->cpu_seconds;
  if (result->on_thread) counts.long_step_cpu_seconds += result->cpu_seconds;
  InFlight batch = std::move(window_.front());
  window_.pop_front();
  CountCompute(batch);
  const bool pushes = !result->gradients.empty();
  if (batch.train()) {
    counts.batches_passed_over += pushes ? 0 : 1;
    counts.loss_sum += result->counted.loss_sum;
    counts.loss_rows += result->counted.rows;
    TARN_RETURN_IF_ERROR(PushAndTick(&batch, std::move(result->gradients), now));
  }
  pulls_->End(&batch.rows, pushes, now, outbox());
  std::optional<FinishedLease> lease;
  if (batch.prepared.last_of_lease) lease = TakeLease(batch);
  source_->Recycle(std::move(batch.prepared));
  last_finish_at_ = Trace::SteadyClock::now();
  return lease;
}

FinishedLease Pipeline::TakeLease(const InFlight& batch) {
  FinishedLease lease{.done = {batch.prepared.lease.lease, lease_quality_.Take()}, .tick = {}};
  if (batch.train()) lease.tick = client().clock();
  return lease;
}

Error Pipeline::Divergence(const InFlight& batch) const {
  const std::span<const TableUse> uses = context_.job->uses();
  std::vector<std::span<const float>> rows(uses.size());
  for (std::size_t t = 0; t < uses.size(); ++t) {
    const Plan& plan = *batch.rows.plans[t];
    if (batch.rows.placed[t] == nullptr)
      rows[t] = batch.rows.values[t].as<float>();
    else if (stepper_->stream() == nullptr)  // else they are in the memory of a GPU
      rows[t] = {batch.rows.placed[t], plan.keys.size() * plan.dim};
  }
  return DivergenceOf(
      {.lease = &batch.prepared.lease, .clock = batch.rows.use, .uses = uses, .plans = batch.rows.plans, .rows = rows});
}

// Of two concurrent steps the second one delays the loop only after the first has ended.
void Pipeline::CountCompute(const InFlight& batch) {
  const auto begin = std::max(batch.started_at, last_finish_at_), end = Trace::SteadyClock::now();
  context_.trace->Add(batch.train() ? "compute" : "evaluate", kComputeTrack, begin, end);
  context_.counts->times.compute += std::chrono::duration<double>(end - begin).count();
}

Status Pipeline::PushAndTick(InFlight* batch, std::vector<Buffer> gradients, TimeUs now) {
  const Clock clock = client().clock();  // later than that of the pull if the worker was late (rule C8)
  TARN_CHECK(batch->rows.use == clock || (batch->rows.use < clock && client().counters().skipped_clocks != 0),
             "a batch is trained at each clock");
  TrainingCounts& counts = *context_.counts;
  const double cpu_before = ThreadCpuSeconds();
  Span push(context_.trace, "push", kComputeTrack);
  const std::uint64_t lines = batch->prepared.lines;
  TARN_RETURN_IF_ERROR(context_.record->Batch(client().welcome().incarnation, batch->prepared.lease,
                                              batch->prepared.after.rows - lines, lines, clock));
  std::vector<TableToPush> pushes;
  for (std::size_t t = 0; t < gradients.size(); ++t)  // none: the batch is skipped
    pushes.push_back({batch->rows.plans[t], std::move(gradients[t]), &failures_});
  if (!pushes.empty()) client().Push(pushes, batch->rows.use, now, outbox());
  position_ = batch->prepared.after;
  client().TickTo(client().clock() + 1, position_, &failures_, now, outbox());
  counts.samples += batch->prepared.batch.rows;
  counts.malformed_lines += lines - batch->prepared.batch.rows;
  ++counts.batches;
  counts.times.push += push.End();
  counts.push_cpu_seconds += ThreadCpuSeconds() - cpu_before;
  return {};
}

void Pipeline::JumpTo(Clock clock, TimeUs now) {
  if (clock > client().clock()) client().TickTo(clock, position_, &failures_, now, outbox());
  next_clock_ = client().clock();
}

MetricList Pipeline::Metrics() const {
  const BatchSource::Seconds reader = source_->seconds();
  return MetricList()
      .Add(WorkerMetric("hot_rows"), pulls_->hot().looked_for())
      .Add(WorkerMetric("hot_hits"), pulls_->hot().found())
      .AddBy(WorkerMetric("stage_seconds"),
             context_.counts->times.Seconds({reader.read, reader.plan, reader.await_room, pulls_->busy_seconds()}));
}

}  // namespace tarn::worker

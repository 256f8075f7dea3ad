// The batches in flight of a training loop: takes them from the reader, asks for their rows, computes them, pushes
// their gradients and ticks, in the order in which they were read. README.md follows a batch through.
//
//   pipeline->AddLease(grant);
//   pipeline->Fill(now);                                  // each turn of the loop
//   if (pipeline->CanStart()) pipeline->Start();
//   if (pipeline->CanFinish()) auto lease = pipeline->Finish(now);
//
// One thread, the one that takes the client's turns. No call waits. After an error the pipeline is of no use any more.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "core/message.h"
#include "core/metrics/metric_list.h"
#include "worker/client/runtime.h"
#include "worker/train/batch_source.h"
#include "worker/train/lease_progress.h"
#include "worker/train/pull_stage.h"
#include "worker/train/record.h"
#include "worker/train/stepper.h"
#include "worker/train/trace.h"
#include "worker/train/training_counts.h"
#include "worker/train/training_job.h"

namespace tarn::worker {

struct PipelineOptions {
  // Of pushes that servers have not acknowledged; with more of them no further step of training starts.
  std::size_t waiting_bytes_max = limits::kQueuedBytesMax;
  StepperOptions stepper;
  // Keys from which on a GPU plans a batch: fewer for tests alone.
  std::size_t device_plan_keys_min = BatchPlannerOptions::kDeviceKeysMin;
};

class Pipeline {
 public:
  // What it works with, and does not own.
  struct Context {
    const TrainingJob* job;  // its tables are ready
    Runtime* runtime;
    Trace* trace;
    Record* record;
    TrainingCounts* counts;
  };
  // `wake` is called from other threads when there may be something to do.
  static Expected<std::unique_ptr<Pipeline>> Make(const Context& context, const PipelineOptions& options,
                                                  std::function<void()> wake);
  // Waits for steps that are under way.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void AddLease(const LeaseGrant& lease) { source_->AddLease(lease); }
  std::optional<Error> reader_error() const { return source_->error(); }
  // Takes batches that are read into the window, up to train.prefetch ahead of the one that is next, and asks for their
  // rows.
  // The error of a request that has failed since the last call.
  Status Fill(TimeUs now);

  // Of the first batch that is not being computed: its rows are there, and not too many pushes are unacknowledged.
  bool CanStart() const;
  Status Start();
  // The oldest step is over. Finish pushes its gradients and ticks; returns its lease if that was the last batch of it.
  // kDiverged: its loss is not a finite number, and nothing of it was pushed.
  bool CanFinish() const { return stepper_->Done(); }
  Expected<std::optional<FinishedLease>> Finish(TimeUs now);

  // Ticks to a clock at which there is nothing to train.
  void JumpTo(Clock clock, TimeUs now);

  std::size_t leases_held() const { return source_->leases_open(); }
  bool drained() const { return source_->leases_open() == 0 && window_.empty(); }
  bool computes() const { return stepper_->steps() != 0; }
  bool empty() const { return window_.empty(); }
  MetricList Metrics() const;

 private:
  struct InFlight;
  // Of pushes and ticks, of which nobody waits for the end.
  class Failures final : public Completion<> {
   public:
    void Done() override {}
    void Failed(const Error& error) override {
      if (status) status = std::unexpected(error);
    }
    Status status;
  };
  Pipeline(const Context& context, std::size_t waiting_bytes_max);

  Client& client() const { return context_.runtime->client(); }
  Outbox* outbox() const { return context_.runtime->outbox(); }
  void StageNext(TimeUs now);
  void CountCompute(const InFlight& batch);
  Error Divergence(const InFlight& batch) const;
  Status PushAndTick(InFlight* batch, std::vector<Buffer> gradients, TimeUs now);
  FinishedLease TakeLease(const InFlight& batch);

  const Context context_;
  const std::size_t waiting_bytes_max_;
  Failures failures_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<PullStage> pulls_;
  std::deque<InFlight> window_;               // the first stepper_->steps() of them are being computed
  Clock next_clock_;                          // of the next batch to be trained
  std::pair<LeaseId, std::uint64_t> staged_;  // the batch that servers prefetch: its lease, and its end
  DataPosition position_;                     // behind the last batch that was pushed
  QualityTally lease_quality_;
  Trace::SteadyClock::time_point step_over_at_;  // the last one, and all that follows it
  std::unique_ptr<Stepper> stepper_;             // goes first: its steps use the window and the tally
};

}  // namespace tarn::worker

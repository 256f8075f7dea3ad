// The batches in flight of a training loop: takes them from the reader, pulls their rows, computes them, pushes their
// gradients and ticks, in the order in which they were read. README.md describes the path of a batch.
//
//   pipeline->AddLease(grant);
//   pipeline->Fill(now);                                  // each turn of the loop
//   if (pipeline->CanStart()) pipeline->Start(now);
//   if (pipeline->CanFinish(now)) auto lease = pipeline->Finish(now);
//
// One thread, that of the client. Calls never wait for messages. On the CPU, Start computes a short step before it
// returns; with hot rows on a GPU, Fill waits for their look-up. After an error the pipeline must not be used.
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
#include "worker/client/client.h"
#include "worker/train/batch_source.h"
#include "worker/train/delays.h"
#include "worker/train/lease_progress.h"
#include "worker/train/pull_stage.h"
#include "worker/train/record.h"
#include "worker/train/stepper.h"
#include "worker/train/trace.h"
#include "worker/train/training_counts.h"
#include "worker/train/training_job.h"

namespace tarn::worker {

// When the batches of a recorded run (record.h) began, which determines the rows that they pulled.
struct BatchBegins {
  std::vector<std::uint64_t> pushed;  // of each training batch: how many batches had been pushed when it began
  bool open = false;                  // the run has left the recording: batches begin as soon as they are read
};

struct PipelineOptions {
  // Bytes of unacknowledged pushes beyond which no training step starts.
  std::size_t waiting_bytes_max = limits::kQueuedBytesMax;
  StepperOptions stepper;
  // To repeat a recorded run; outlives the pipeline. Null: a batch begins as soon as it is read.
  const BatchBegins* begins = nullptr;
  // The worker's GPU, if it has one, plans batches of at least this many keys. Changed only by tests.
  std::size_t device_plan_keys_min = BatchPlannerOptions::kDeviceKeysMin;
};

class Pipeline {
 public:
  // The objects that it uses and does not own.
  struct Context {
    const TrainingJob* job;  // its tables are ready
    Client* client;
    Outbox* outbox;  // of requests to the client
    Trace* trace;
    Record* record;
    TrainingCounts* counts;
    // False: the pipeline has no threads. Fill reads batches, and Start returns after the step.
    bool reader_thread = true;
  };
  // `wake` is called on other threads when there may be something to do.
  static Expected<std::unique_ptr<Pipeline>> Make(const Context& context, const PipelineOptions& options,
                                                  std::function<void()> wake);
  // Waits for steps in progress.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void AddLease(const LeaseGrant& lease) { source_->AddLease(lease); }
  std::optional<Error> reader_error() const { return source_->error(); }
  // Moves batches that are read into the window, up to train.prefetch ahead of the next one, and pulls their rows.
  // Errors include those of earlier pulls, pushes and ticks.
  Status Fill(TimeUs now);

  // Whether the first batch that is not being computed may start: its rows have arrived, and not too many pushes are
  // unacknowledged.
  bool CanStart() const;
  Status Start(TimeUs now);
  // CanFinish: whether the oldest step is complete and has taken the time that [delays] gives it. Finish pushes its
  // gradients and ticks; returns the lease if this was its last batch. kDiverged: the loss is not finite; nothing was
  // pushed.
  bool CanFinish(TimeUs now) const { return MayFinish() && now >= window_.front().due; }
  // When CanFinish becomes true; nullopt while the oldest step is not complete.
  std::optional<TimeUs> NextDue() const;
  Expected<std::optional<FinishedLease>> Finish(TimeUs now);

  // Ticks to a clock without training.
  void JumpTo(Clock clock, TimeUs now);

  std::size_t leases_held() const { return source_->leases_open(); }
  bool drained() const { return source_->leases_open() == 0 && window_.empty(); }
  bool computes() const { return stepper_->steps() != 0; }
  bool empty() const { return window_.empty(); }
  MetricList Metrics() const;

 private:
  struct InFlight {
    PreparedBatch prepared;
    BatchRows rows;
    Trace::SteadyClock::time_point started_at;  // when its step started
    TimeUs due = 0;                             // the earliest time for Finish ([delays])

    bool train() const { return prepared.lease.purpose == LeasePurpose::kTrain; }
  };
  // Receives the errors of pushes and ticks, whose completion nothing else waits for.
  class Failures final : public Completion<> {
   public:
    void Done() override {}
    void Failed(const Error& error) override {
      if (status) status = std::unexpected(error);
    }
    Status status;
  };
  Pipeline(const Context& context, const PipelineOptions& options);

  Client& client() const { return *context_.client; }
  Outbox* outbox() const { return context_.outbox; }
  bool BeginsNow() const;  // the next training batch, in a repeated run
  bool Repeats() const { return begins_ != nullptr && !begins_->open; }
  bool MayBegin() const { return !Repeats() || BeginsNow(); }
  bool MayFinish() const;
  void StageNext(TimeUs now);
  void CountCompute(const InFlight& batch);
  Error Divergence(const InFlight& batch) const;
  Status PushAndTick(InFlight* batch, std::vector<Buffer> gradients, TimeUs now);
  FinishedLease TakeLease(const InFlight& batch);

  const Context context_;
  const std::size_t waiting_bytes_max_;
  const BatchBegins* const begins_;
  Failures failures_;
  BatchDelays delays_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<PullStage> pulls_;
  std::deque<InFlight> window_;               // the first stepper_->steps() of them are being computed
  Clock next_clock_;                          // clock of the next batch to train
  std::pair<LeaseId, std::uint64_t> staged_;  // the batch that servers prefetch: its lease, and its end
  DataPosition position_;                     // after the last pushed batch
  QualityTally lease_quality_;
  Trace::SteadyClock::time_point last_finish_at_;  // when the last Finish returned
  std::unique_ptr<Stepper> stepper_;               // destroyed first, because its steps use the window and the tally
};

}  // namespace tarn::worker

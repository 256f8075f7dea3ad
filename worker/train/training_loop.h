// The training loop of a worker as a state machine: after the welcome it opens the job's data and creates the tables of
// its model, then it runs the pipeline, requests leases and reports a failure. It opens no socket, and reads clocks
// only for metrics and traces: the caller passes the time, exchanges the client's messages and calls Turn between them.
// Trainer (trainer.h) runs it over a transport, sim/trial/ in simulated time.
//
//   while (client.state() is kJoining or kRunning) {
//     ... the client receives messages; what is in the outbox is sent ...
//     loop.Turn(now);
//     ... waits for messages; not at all if loop.CanWork(now), at most until loop.NextDue() ...
//   }
//
// One thread. Opening data, reading batches and long steps have their own threads unless the data is shared.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/message.h"
#include "core/metrics/metric_list.h"
#include "worker/client/client.h"
#include "worker/client/completion.h"
#include "worker/train/job_failure.h"
#include "worker/train/lease_progress.h"
#include "worker/train/pipeline.h"
#include "worker/train/record.h"
#include "worker/train/trace.h"
#include "worker/train/training_counts.h"
#include "worker/train/training_job.h"

namespace tarn::worker {

class TrainingLoop {
 public:
  // Objects that it uses and does not own.
  struct Context {
    Client* client;
    Outbox* outbox;  // of requests to the client
    Trace* trace;
    Record* record;
    // A job whose data is open; the loop then shares it and has no thread. Null: it opens the data itself.
    const TrainingJob* shared = nullptr;
  };
  // `wake`: called on other threads when there may be something to do; may be empty. `report`: called with the metrics
  // that the client will send; `last`: the worker is about to leave.
  struct Hooks {
    std::function<void()> wake;
    std::function<void(const MetricList& metrics, bool last)> report;
  };
  TrainingLoop(const Context& context, const PipelineOptions& options, Hooks hooks);
  ~TrainingLoop();

  // Takes the steps that are possible now: at most one batch is started and one is finished. The client must be
  // kRunning.
  void Turn(TimeUs now);
  // Whether Turn has something to do now, without another message.
  bool CanWork(TimeUs now) const;
  // When the oldest batch will have taken the time that [delays] gives it; nullopt: its step is not complete.
  std::optional<TimeUs> NextDue() const;

  // Fails the job: sends the error to the scheduler, which stops the fleet, and repeats it in later turns, once a
  // second. Only the first error counts.
  void FailJob(Error error, TimeUs now);
  bool failed() const { return bool(failure_); }
  const Error& error() const { return failure_.error(); }  // only if failed()
  // Asks the thread that opens data to end soon.
  void StopOpening() { job_.StopOpening(); }

  // Counts time in which the caller waited for messages.
  void CountWait(double seconds);
  const TrainingCounts& counts() const { return counts_; }

 private:
  // Receives the scheduler's answer to a lease request.
  class LeaseAnswer final : public Completion<LeaseReply> {
   public:
    void Done(LeaseReply answer) override { reply = std::move(answer); }
    void Failed(const Error& error) override { status = std::unexpected(error); }
    std::optional<LeaseReply> reply;  // until the loop takes it
    Status status;
  };

  Client& client() const { return *context_.client; }
  Status Advance(TimeUs now);
  Status Prepare(TimeUs now);
  Status Begin();                   // after the Welcome: parses the job, starts to open the data
  Status CreateTables(TimeUs now);  // after the data is open: makes the model and its tables
  Status MakePipeline();            // after the tables exist
  Status TurnPipeline(TimeUs now);
  Status TakeLeases();
  void RequestWork(TimeUs now);
  void ReportMetrics(TimeUs now, bool last);
  void SendFailure(TimeUs now);

  const Context context_;
  const PipelineOptions options_;
  const Hooks hooks_;
  TrainingCounts counts_;
  TrainingJob job_;
  LeaseProgress leases_;
  LeaseAnswer lease_answer_;
  std::unique_ptr<Pipeline> pipeline_;  // null until the tables exist
  bool finished_one_ = false;           // in the last turn, so that the window may have room
  TimeUs next_metrics_ = 0;
  JobFailure failure_;
};

}  // namespace tarn::worker

// The training loop of a worker process: joins, opens the job's data, exchanges messages, drives the pipeline of
// batches, requests leases and reports results. One thread drives the client state machine, its sockets and the
// computation; a second one reads and plans ahead. While a GPU computes, the loop continues with messages and other
// batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/metrics/status_report.h"
#include "net/transport.h"
#include "worker/client/runtime.h"
#include "worker/train/job_failure.h"
#include "worker/train/join_watch.h"
#include "worker/train/lease_progress.h"
#include "worker/train/pipeline.h"
#include "worker/train/record.h"
#include "worker/train/trace.h"
#include "worker/train/training_counts.h"
#include "worker/train/training_job.h"

namespace tarn::worker {

inline constexpr char kProgram[] = "tarn-worker";

struct TrainerOptions {
  std::string scheduler;  // its endpoint
  std::uint32_t rank = kAnyRank;
  std::uint64_t nonce = 0;
  std::string run_dir;               // metrics.jsonl, traces; empty: neither
  std::string record;                // file of worker/train/record.h; empty: none
  double join_seconds_max = 60;      // timeout of the Welcome
  std::shared_ptr<StatusFeed> feed;  // feed of the process's HTTP server; null: none
  std::string http;                  // address of that server; empty: none
  PipelineOptions pipeline;
};

// The outcome of a worker process.
enum class TrainerEnd : std::uint8_t { kDone, kFenced, kFailed };

class Trainer {
 public:
  Trainer(TrainerOptions options, net::Transport* transport);

  // Runs to the end of the job. On kFailed, error() is the reason, which was also sent to the scheduler, if reachable.
  TrainerEnd Run();
  const Error& error() const { return error_; }
  // Makes Run end soon. Any thread.
  void RequestAbort() {
    abort_ = true;
    runtime_.Wake();
  }

 private:
  // Receives the scheduler's answer to a lease request.
  class LeaseAnswer final : public Completion<LeaseReply> {
   public:
    void Done(LeaseReply answer) override { reply = std::move(answer); }
    void Failed(const Error& error) override { status = std::unexpected(error); }
    std::optional<LeaseReply> reply;  // until the loop takes it
    Status status;
  };

  static TimeUs Now() { return Runtime::Now(); }
  Client& client() { return runtime_.client(); }
  const Client& client() const { return runtime_.client(); }
  bool InFleet() const;
  Status RoundWithinMemory();
  Status Round();
  Status Prepare();
  Status Begin();         // after the Welcome: parses the job, starts to open the data
  Status CreateTables();  // after the data is open: makes the model and its tables
  Status MakePipeline();  // after the tables exist
  Status TurnPipeline();
  Status TakeTurn();  // of the runtime
  Status RecordTicks();
  Status TakeLeases();
  void AskForWork();
  void ReportMetrics();
  void Publish(const MetricList& metrics);
  void FailJob(Error error);
  void SendFailure();
  TimeUs WaitUs() const;  // maximum wait of the next exchange
  void WriteTrace() const;
  TrainerEnd HowItEnded(const Status& going);

  TrainerOptions options_;
  Runtime runtime_;
  Trace trace_;
  Record record_;
  TrainingCounts counts_;
  TrainingJob job_;
  LeaseProgress leases_;
  LeaseAnswer lease_answer_;
  std::unique_ptr<Pipeline> pipeline_;  // null until the tables exist

  TimeUs next_metrics_ = 0, next_report_ = 0;
  JoinWatch joining_;
  JobFailure failure_;
  Error error_;
  std::atomic<bool> abort_ = false;
};

}  // namespace tarn::worker

// The training of a worker process: runs the training loop (training_loop.h) over a transport. One thread drives the
// client state machine, its sockets and the computation; a second one reads and plans ahead. While a GPU computes, the
// loop continues with messages and other batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/metrics/status_report.h"
#include "net/transport.h"
#include "worker/runtime/runtime.h"
#include "worker/train/join_watch.h"
#include "worker/train/pipeline.h"
#include "worker/train/record.h"
#include "worker/train/trace.h"
#include "worker/train/training_loop.h"

namespace tarn::worker {

inline constexpr char kProgram[] = "tarn-worker";

struct TrainerOptions {
  std::string scheduler;  // its endpoint
  std::uint32_t rank = kAnyRank;
  std::uint64_t nonce = 0;
  std::string run_dir;               // folder of the run, for the trace; empty: no trace
  std::string record;                // file of worker/train/record.h; empty: none
  double join_seconds_max = 60;      // longest silence of the scheduler before the Welcome
  std::shared_ptr<StatusFeed> feed;  // feed of the process's HTTP server; null: none
  std::string http;                  // address of that server; empty: none
  bool shm = false;                  // shares memory with shards of this host
  PipelineOptions pipeline;
};

// The outcome of a worker process.
enum class TrainerEnd : std::uint8_t { kDone, kFenced, kFailed };

class Trainer {
 public:
  Trainer(TrainerOptions options, net::Transport* transport);

  // Runs to the end of the job. On kFenced and kFailed, error() is the reason.
  TrainerEnd Run();
  const Error& error() const { return error_; }
  // Makes Run end soon. Any thread.
  void RequestAbort() {
    abort_ = true;
    runtime_.Wake();
  }
  // For Ctrl-C, which a terminal sends to all of its processes: the same while no scheduler has answered. Later it does
  // nothing, because the scheduler stops the fleet. Any thread.
  void RequestInterrupt() {
    if (!answered_) RequestAbort();
  }

 private:
  static TimeUs Now() { return Runtime::Now(); }
  Client& client() { return runtime_.client(); }
  const Client& client() const { return runtime_.client(); }
  bool InFleet() const;
  Status RoundWithinMemory();
  void ReportEnd();
  Status Round();
  Status TakeTurn();
  Status RecordTicks();
  void Publish(const MetricList& metrics, bool last);
  TimeUs WaitUs() const;  // how long the next exchange may wait for messages
  void WriteTrace() const;
  TrainerEnd HowItEnded(const Status& status);

  TrainerOptions options_;
  Runtime runtime_;
  Trace trace_;
  Record record_;
  TrainingLoop loop_;
  TimeUs next_report_ = 0;
  JoinWatch joining_;
  Error error_;
  std::atomic<bool> abort_ = false;
  std::atomic<bool> answered_ = false;  // by the scheduler
};

}  // namespace tarn::worker

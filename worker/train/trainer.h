// The training loop of a worker process: leases in, batches through pull, compute and push, ticks and results out. One
// thread drives the client state machine, its sockets and the compute; a second one reads and plans ahead. While a GPU
// computes, the loop goes on with messages and the batches around.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/limits.h"
#include "core/log.h"
#include "net/transport.h"
#include "worker/client/client_exchange.h"
#include "worker/train/batch_source.h"
#include "worker/train/pull_stage.h"
#include "worker/train/record.h"
#include "worker/train/stage_times.h"
#include "worker/train/stepper.h"
#include "worker/train/trace.h"

namespace tarn::worker {

inline constexpr char kProgram[] = "tarn-worker";

struct TrainerOptions {
  std::string scheduler;  // its endpoint
  std::uint32_t rank = kAnyRank;
  std::uint64_t nonce = 0;
  std::string run_dir;           // metrics.jsonl, traces; empty: neither
  std::string record;            // file of worker/train/record.h; empty: none
  double join_seconds_max = 60;  // give up when no Welcome comes
  // Of pushes that servers have not acknowledged; with more of them no further step of training starts.
  std::size_t waiting_bytes_max = limits::kQueuedBytesMax;
  StepperOptions stepper;  // but the rank, which is the one that the scheduler gave, and `done`
  // Keys from which on a GPU plans a batch: fewer for tests alone.
  std::size_t device_plan_keys_min = BatchPlannerOptions::kDeviceKeysMin;
};

// How a worker process ends.
enum class TrainerEnd : std::uint8_t { kDone, kFenced, kFailed };

class Trainer {
 public:
  Trainer(TrainerOptions options, net::Transport* transport);
  ~Trainer();

  // Runs to the end of the job. On kFailed, error() says why (and the scheduler has been told, if reachable).
  TrainerEnd Run();
  const Error& error() const { return error_; }
  // Makes Run end soon; safe in a signal handler.
  void RequestAbort() { abort_ = true; }

 private:
  struct InFlight;

  static TimeUs Now() { return ClientExchange::Now(); }
  Client& client() { return exchange_.client(); }
  const Client& client() const { return exchange_.client(); }
  bool InFleet() const;
  Status RoundWithinMemory();
  Status Round();
  Status Prepare();
  void WriteTrace() const;
  TrainerEnd HowItEnded(const Status& going);
  Status Setup();       // once welcomed: the job; begins to open the data
  Status MakeTables();  // once they are open: the model; asks for its tables
  void TellFailure();
  void SayWait(TimeUs silent);
  Status CheckScheduler();  // it is there, or may still come
  Status OpenData();
  bool TablesReady() const { return ready_tables_ == uses_.size() && !uses_.empty(); }
  Status StartPipeline();
  void Send();      // what is in the outbox; the record of ticks goes before
  void Exchange();  // one round: send, receive, timers, events
  void OnEvent(ClientEvent event);
  void Fill();
  void StageNext();
  void OnPull(PullDone pull);
  bool StepCanStart() const;
  void StartStep();
  bool StepCanFinish() const;
  void FinishStep();
  void CountCompute(const InFlight& batch);
  Error Divergence(const InFlight& batch) const;
  void FinishTrain(InFlight* batch, std::vector<Buffer> gradients);
  void AskForWork();
  void ReportMetrics();
  void FailJob(Error error);
  TimeUs WaitUs() const;  // of the next exchange, at most

  TrainerOptions options_;
  net::Transport* transport_;
  ClientExchange exchange_;

  Job job_;
  bool set_up_ = false;
  std::unique_ptr<Model> model_;
  std::vector<TableUse> uses_;
  std::size_t ready_tables_ = 0;
  std::array<std::unique_ptr<Dataset>, 3> datasets_;
  Trace trace_;
  Record record_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<PullStage> pulls_;
  std::unique_ptr<Stepper> stepper_;  // the destructor ends it before all others

  std::deque<InFlight> window_;  // the first stepper_->steps() of them are being computed
  Clock next_clock_;
  std::pair<LeaseId, std::uint64_t> staged_;  // the batch of which servers have heard ahead: its lease, and its end
  DataPosition position_;
  QualityTally lease_quality_;
  std::vector<LeaseDone> done_;
  std::multimap<std::uint64_t, LeaseDone> done_at_tick_;
  bool asked_ = false, leaving_ = false, finished_ = false;
  std::optional<Clock> jump_to_;

  std::uint64_t samples_ = 0, malformed_lines_ = 0, batches_ = 0, batches_passed_over_ = 0, loss_rows_ = 0;
  double loss_sum_ = 0;  // over the training rows seen but those passed over, of the predictions before each update
  StageTimes times_;
  Trace::SteadyClock::time_point step_over_at_;            // the last one, and all that follows it
  double compute_cpu_seconds_ = 0, push_cpu_seconds_ = 0;  // parts of the CPU time of the loop
  double beside_cpu_seconds_ = 0;                          // of long steps, which other threads compute
  TimeUs next_metrics_ = 0;
  TimeUs next_wait_note_ = kWaitNotePeriodUs;  // of silence while it joins
  std::stop_source stop_loading_;
  std::future<Status> loading_;  // its destructor waits for it
  TimeUs next_failure_ = 0;
  std::optional<Error> failed_;
  Error error_;
  std::atomic<bool> abort_ = false;
};

}  // namespace tarn::worker

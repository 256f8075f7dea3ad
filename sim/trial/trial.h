// Runs a job in simulated time: see README.md.
//
//   auto trial = Trial::Make(job, run_dir, {.files = &files});
//   if (trial) Status ended = (*trial)->Run(hooks);   // ok also after a clean stop
//
// With a recording, a trial repeats that run of the job to the bit (replay.h).
//
// One thread. Deterministic: time, delays and randomness follow from the job.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/scheduler.h"
#include "server/shard/shard.h"
#include "sim/disks/memory_checkpoint_store.h"
#include "sim/event_queue.h"
#include "sim/trial/effect_gate.h"
#include "sim/trial/learning_curve.h"
#include "sim/trial/links.h"
#include "sim/trial/recording.h"
#include "sim/trial/replay.h"
#include "sim/trial/run_files.h"
#include "sim/trial/trial_stores.h"
#include "worker/client/client.h"
#include "worker/train/record.h"
#include "worker/train/trace.h"
#include "worker/train/training_job.h"
#include "worker/train/training_loop.h"

namespace tarn::sim {

// The job as a trial runs it: rows stay in memory, and the only checkpoints are those of the best epoch, of the last
// one and of a stop.
Job AsTrial(Job job);

struct TrialOptions {
  std::optional<Recording> recording;  // of a run of the job, which is repeated
  std::optional<std::uint64_t> until;  // with a recording: when so many samples are trained, the run stops cleanly
  TrialFiles* files = nullptr;         // its checkpoints; they outlive the trial
  std::string resume;                  // directory in `files` of a checkpoint to continue from; empty: none
};

struct TrialHooks {
  // Called about every quarter of a second of real time.
  std::function<void(const scheduler::Progress& progress, double simulated_seconds)> progress;
  // Called at the same times. Returns true to stop the run cleanly.
  std::function<bool()> stops;
};

class Trial {
 public:
  // Opens the data of the job, which AsTrial has prepared, and writes the first files of the run folder. Errors are
  // those of the data and of the folder; kUnsupported: a job for a GPU or without data, or `until` for a job that cuts
  // checkpoints at a clock.
  static Expected<std::unique_ptr<Trial>> Make(const Job& job, const std::string& run_dir, TrialOptions options);
  ~Trial();

  // Runs the job to its end. May be called once. The error is the reason why the run failed, kIo of the run's files, or
  // kCorrupt: a shard differs from the recording, or waits for a message that does not arrive.
  Status Run(const TrialHooks& hooks);
  double simulated_seconds() const { return double(events_.now()) * 1e-6; }
  // Null without a recording.
  const Replay* replay() const { return replay_ ? &*replay_ : nullptr; }
  // Valid after Run: the directory of the last checkpoint.
  std::string last_checkpoint() const { return scheduler_->progress().last_checkpoint; }

 private:
  // What every node has: its number in Links, and its planned timer and turn.
  struct Node {
    std::size_t number = 0;
    TimeUs timer_at = -1;       // -1: none
    bool turn_planned = false;  // scheduler, worker: at the current time
  };
  struct ShardNode : Node {
    std::unique_ptr<server::MemoryCheckpointStore> store;
    std::unique_ptr<TrialBlobStore> blobs;
    EffectGate* gate = nullptr;  // null without a recording
    std::unique_ptr<server::Shard> shard;
  };
  struct WorkerNode : Node {
    explicit WorkerNode(const worker::ClientOptions& options) : client(options), trace(0) {}
    worker::Client client;
    Outbox out;
    worker::Trace trace;
    worker::Record record;
    std::unique_ptr<worker::TrainingLoop> loop;
    std::uint64_t samples = 0;  // the worker's part of samples_
  };

  Trial(const Job& job, RunFiles files, TrialOptions options);
  void MakeShard(std::uint32_t index);
  void MakeWorker(std::uint32_t rank);
  void StartAll();
  TimeUs now() const { return events_.now(); }
  // Runs `step` after everything else that happens now.
  void Soon(std::function<void()> step) { events_.At(now(), std::move(step)); }

  void DeliverToScheduler(Peer from, Message message);
  void TurnScheduler();
  void DeliverToShard(ShardNode* node, Peer from, Message message);
  void DeliverHeld(ShardNode* node);  // the messages whose turn it is
  void StepShard(ShardNode* node, const std::function<void(Outbox*)>& step);
  void DeliverToWorker(WorkerNode* node, Peer from, Message message);
  void PlanTurn(WorkerNode* node);
  void TurnWorker(WorkerNode* node);

  void Send(const Node& from, Outbox* out);
  void Deliver(const Node& from, Outgoing outgoing);
  // Calls `due` at `at`, unless the node's timer is due by then already. Replaces a later timer.
  void Arm(Node* node, TimeUs at, std::function<void()> due);
  void WatchProgress(const TrialHooks& hooks);
  void RequestStop();
  void LeaveReplay();  // leaves the recorded order, and requests a stop
  void CountSamples(WorkerNode* node);
  void AddPoint();
  Status Finish();

  const Job job_;
  std::optional<Replay> replay_;  // of the recording
  RunFiles files_;
  EventQueue events_;
  Links links_;
  worker::TrainingJob data_;  // shared by all workers
  TrialFiles* checkpoints_;
  TrialSchedulerStore store_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  Node scheduler_node_;
  std::deque<ShardNode> shards_;
  std::deque<WorkerNode> workers_;
  std::uint64_t samples_ = 0;  // trained by all workers
  LearningCurve curve_;
};

}  // namespace tarn::sim

// The scheduler: places partitions, monitors the fleet, grants data, and coordinates checkpoints and evaluation. A
// deterministic state machine like server::Shard; docs/protocol.md has the rules.
//
// Not thread-safe: one thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/progress/notes.h"
#include "scheduler/progress/progress.h"
#include "scheduler/state/state.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

struct SchedulerOptions {
  Job job;
  std::string job_text;               // sent to nodes with Welcome
  std::string checkpoints_directory;  // checkpoint n is written to <this>/ckpt-<n>
  std::uint64_t first_incarnation = 1;
  const Manifest* resume = nullptr;  // copied; null: a new run
  std::string resume_directory;      // directory of that manifest
  // Durability "log": a random number of this run and, after a crash of all processes, the saved state (copied; null: a
  // new run). The state must be `begun`. If it is not, callers pass only its run and its next incarnation, as `run` and
  // `first_incarnation`.
  std::uint64_t run = 0;
  const SchedulerState* restore = nullptr;
  // For a run that continues in its own directory: the highest number of a checkpoint there, complete or not, and the
  // directories of complete ones, oldest first, which count toward checkpoints_kept.
  CheckpointId last_checkpoint;
  std::vector<std::string> kept_checkpoints;
  // To repeat a recorded run: the rank of the worker that lease 1, 2, ... is granted to. No further lease is granted.
  std::optional<std::vector<WorkerRank>> lease_order;
  std::string http;  // address of the scheduler's HTTP server, "http://HOST:PORT"; empty: none
};

class Scheduler {
 public:
  // `store` outlives this object and is not null.
  Scheduler(SchedulerOptions options, SchedulerStore* store);
  ~Scheduler();

  // Must be called first.
  void Start(TimeUs now);
  // Handles a message. Every function with `out` appends to it the messages to send.
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  // The same for a batch of messages: Handle receives each message, Settle performs the consequences of all of them
  // once. Every other function with `out` settles first.
  void Handle(Peer from, Message message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;  // when OnTimer must be called next
  // Handles the end of a write: sends the messages that waited for it. Also valid after the scheduler has stopped.
  void OnWritten(const StoreWritten& written, TimeUs now, Outbox* out);

  // For Ctrl-C: cuts a checkpoint (if the job has checkpoints and there is anything to save), then stops the fleet with
  // phase "stopped". A second call stops without waiting for the checkpoint.
  void RequestStop(TimeUs now, Outbox* out);
  // Requests a checkpoint, which is cut as soon as possible. Does nothing if the job has no checkpoints, nothing has
  // been trained yet, or the run is ending.
  void RequestCheckpoint(TimeUs now, Outbox* out);

  bool stopping() const;  // nodes are being stopped
  bool stopped() const;   // every node has confirmed the stop, or the wait has timed out
  const Shutdown& stop_reason() const;
  const View& view() const;
  Progress progress() const;
  // Lines for the log since the last call: joins, deaths, checkpoints, epochs.
  std::vector<Note> TakeNotes();
  // A hash of the run's state, to compare simulated runs.
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::scheduler

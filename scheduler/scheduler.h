// The scheduler: places partitions, watches the fleet, hands out data, coordinates checkpoints and evaluation. A
// deterministic state machine like server::Shard; docs/protocol.md has the rules.
//
// Not thread-safe: one thread owns it.
#pragma once

#include <cstdint>
#include <memory>
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
  std::string resume_directory;      // of that manifest
  // Durability "log": a number drawn for this run, and after a crash of everything the state that it had kept (copied;
  // null: a new run). Of a state that is not `begun` only its run and next incarnation count: it is not restored.
  std::uint64_t run = 0;
  const SchedulerState* restore = nullptr;
  // Of a run that continues in its own directory: the highest number that a checkpoint there has, whole or not, and the
  // directories of whole ones, oldest first, which count toward checkpoints_kept.
  CheckpointId last_checkpoint;
  std::vector<std::string> kept_checkpoints;
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, SchedulerStore* store);
  ~Scheduler();

  void Start(TimeUs now);
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  // The same for messages that came together: Hear takes each in, Settle does once what follows from all of them. Every
  // other call settles first.
  void Hear(Peer from, Message message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;
  // The store has ended a write: what waited for it is sent. Also once the scheduler has stopped.
  void OnWritten(const StoreWritten& written, TimeUs now, Outbox* out);

  // Ctrl-C: cuts a checkpoint (if the job keeps them), then stops the fleet; phase "stopped". After a second call it
  // does not wait for the checkpoint.
  void RequestStop(TimeUs now, Outbox* out);
  // Cuts one now, like a periodic one. Does nothing where there is nothing to keep.
  void RequestCheckpoint(TimeUs now, Outbox* out);

  bool stopping() const;  // nodes are being stopped
  bool stopped() const;   // every node has confirmed the stop, or is not waited for any longer
  const Shutdown& stop_reason() const;
  const View& view() const;
  Progress progress() const;
  // For the log, since the last call: joins, deaths, checkpoints, epochs.
  std::vector<Note> TakeNotes();
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::scheduler

// The scheduler: places partitions, watches the fleet, hands out data, coordinates checkpoints and evaluation. A
// deterministic state machine like server::Shard; docs/protocol.md gives the rules.
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
#include "scheduler/progress/progress.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// How a write to a SchedulerStore has ended: durable, or not, and why. What failed may be there or not, in part or
// whole.
struct StoreWritten {
  enum class What : std::uint8_t { kState, kManifest };
  What what = What::kState;
  std::uint64_t number = 0;  // of the state, or of the checkpoint
  Status status;
};

// What the scheduler needs done outside: files. The real one writes to the run's directory; the simulator's keeps
// it in memory. Calls return at once. Each write is reported once, through Scheduler::OnWritten, when it has ended;
// writes and removals take effect in the order of their calls, but a removal may take long, and holds up no write.
class SchedulerStore {
 public:
  virtual ~SchedulerStore() = default;
  virtual void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) = 0;
  virtual void RemoveCheckpoint(const std::string& directory) = 0;
  virtual std::vector<std::string> Removing() const { return {}; }  // what is not gone yet
  // Runs with durability "log": replaces the state by a new file (rule G1), one at a time; forgets it, at the end.
  // Others never call them.
  virtual void WriteState(std::uint64_t /*number*/, const SchedulerState&) {}
  virtual void RemoveState() {}
};

struct SchedulerOptions {
  Job job;
  std::string job_text;               // sent to nodes with Welcome
  std::string checkpoints_directory;  // checkpoint n is written to <this>/ckpt-<n>
  std::uint64_t first_incarnation = 1;
  const Manifest* resume = nullptr;  // copied; null: a new run
  std::string resume_directory;      // of that manifest
  // Durability "log": a number drawn for this run, and after a crash of everything what it had kept (copied; null: a
  // new run). A state that is not `begun` is no reason to restore: only its run and next incarnation count.
  std::uint64_t run = 0;
  const SchedulerState* restore = nullptr;
  // Of a run that goes on in its own directory: the highest number that a checkpoint there has, whole or not, and the
  // directories of whole ones, oldest first, which count toward checkpoints_kept.
  CheckpointId last_checkpoint;
  std::vector<std::string> kept_checkpoints;
};

struct Note {
  std::string text;
  bool warning = false;  // something is lost or fails, and the run goes on
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, SchedulerStore* store);
  ~Scheduler();

  void Start(TimeUs now);
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  // The same for messages that came together: Hear takes each in, Settle does what follows from all of them, once.
  // Every other call settles first.
  void Hear(Peer from, Message message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;
  // The store has ended a write: what waited for it leaves. Also once the scheduler has stopped.
  void OnWritten(const StoreWritten& written, TimeUs now, Outbox* out);

  // Ctrl-C: cut a checkpoint (if the job's durability has them), then shut the fleet down; phase "stopped". A second
  // call does not wait for the checkpoint.
  void RequestStop(TimeUs now, Outbox* out);
  // On request, as periodic ones.
  void RequestCheckpoint(TimeUs now, Outbox* out);

  bool stopping() const;  // the end has begun: nodes are being told to stop
  bool stopped() const;   // every node has been told to stop, and has stopped as far as one can tell
  const Shutdown& stop_reason() const;
  const View& view() const;
  Progress progress() const;
  // What happened since the last call, for the log: joins, deaths, checkpoints, epochs.
  std::vector<Note> TakeNotes();
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::scheduler

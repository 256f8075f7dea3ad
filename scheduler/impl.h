// Composes the parts of the scheduler: routes messages and orders the steps. Internal. Each subject has its own object;
// this class has only what a step needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/barriers.h"
#include "scheduler/checkpoints/checkpoint_coordinator.h"
#include "scheduler/epochs/epochs.h"
#include "scheduler/leases/lease_desk.h"
#include "scheduler/membership/agreement.h"
#include "scheduler/membership/fleet_watch.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/notes.h"
#include "scheduler/run_record.h"
#include "scheduler/scheduler.h"
#include "scheduler/setup.h"
#include "scheduler/state/state_keeper.h"
#include "scheduler/stopping/fleet_stop.h"
#include "scheduler/stopping/stop_request.h"
#include "scheduler/tables.h"

namespace tarn::scheduler {

class Scheduler::Impl {
 public:
  // `options` are prepared (setup.h).
  Impl(const SchedulerOptions& options, SchedulerStore* store);

  void Start(TimeUs now);
  void Handle(Peer from, const Message& message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const { return turn_.next_timer; }
  void OnWritten(const StoreWritten& written, TimeUs now, Outbox* out);
  void RequestStop(TimeUs now, Outbox* out);
  void RequestCheckpoint(TimeUs now, Outbox* out);
  // At the end of a step: starts to write the new state, and delays messages that depend on it. `sent`: number of
  // messages in `out` before the step.
  void Persist(std::size_t sent, TimeUs now, Outbox* out);

  const FleetStop& stop() const { return stop_; }
  const View& view() const { return membership_.view(); }
  Progress progress() const;
  std::vector<Note> TakeNotes() { return notes_.Take(); }
  std::uint64_t StateHash() const;

 private:
  struct Turn {
    TimeUs now = 0, next_timer = 0;
    bool unsettled = false;  // messages were handled after the last Settle
    Outbox answers;          // answers to them
  };

  Mailer Mail(Outbox* out) const { return {setup_.fingerprint, out, view().routes.epoch}; }

  // messages.cc
  void Dispatch(Peer from, const Message& message, TimeUs now, Outbox* out);
  void AfterStop(Peer from, const Message& message, TimeUs now, Outbox* out);
  void FromShard(const ShardNode& shard, const Message& message, TimeUs now, Outbox* out);
  void FromWorker(const WorkerNode& worker, const Message& message, TimeUs now, Outbox* out);
  void OnCreateTable(Incarnation worker, const TableSpec& wanted);
  void OnLeaseRequest(const WorkerNode& worker, const LeaseRequest& request, TimeUs now, Outbox* out);
  // Requests for a checkpoint or a stop, and reports of failures. `who`: the sender in texts for users.
  void OnRequest(const std::string& who, Peer from, const Message& message, TimeUs now, Outbox* out);

  // impl.cc
  void WatchFleet(TimeUs now, Outbox* out);
  void OnStateFailed(const StoreWritten& written, TimeUs now, Outbox* out);
  bool AnythingDone() const;
  Status MayCut() const;
  // Stops the run with this reason, after a checkpoint if there is anything to keep.
  void WantStop(Shutdown reason, TimeUs now, Outbox* out);
  TimeUs StopDeadline(TimeUs now) const;
  // Ends the run: sends every node a Shutdown. `phase`: the phase of progress() from now on.
  void Stop(Shutdown reason, std::string phase, TimeUs now, Outbox* out);
  void Fail(ErrorCode code, std::string reason, TimeUs now, Outbox* out);

  // advance.cc: the next actions; each function returns whether anything changed.
  void Advance(TimeUs now, Outbox* out);
  bool AdvanceFormation(TimeUs now);
  bool AdvanceVerdicts();
  bool AdvanceAgreement(TimeUs now);
  bool AdvanceCut(TimeUs now, Outbox* out);
  bool AdvanceStop(TimeUs now, Outbox* out);
  bool AdvanceEpochs(TimeUs now, Outbox* out);
  void Admit(Incarnation worker);
  void OnCutEnd(const CutEnd& end, TimeUs now, Outbox* out);
  void Answer(TimeUs now, Outbox* out);

  Setup setup_;
  Notes notes_;
  Membership membership_;
  LeaseDesk desk_;
  Tables tables_;
  Barriers barriers_;
  Epochs epochs_;
  RunRecord record_;
  Agreement agreement_;
  CheckpointCoordinator cuts_;
  StopRequest stop_request_;
  FleetStop stop_;
  StateKeeper state_;
  FleetWatch watch_;
  Turn turn_;
};

}  // namespace tarn::scheduler

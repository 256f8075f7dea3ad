// The scheduler's rooms put together. Internal: scheduler.cc takes messages in, advance.cc decides what comes next,
// cut.cc carries out checkpoints, durable.cc keeps the state on disk.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/listening.h"
#include "scheduler/barriers.h"
#include "scheduler/checkpoints/checkpoint_requests.h"
#include "scheduler/checkpoints/checkpoints.h"
#include "scheduler/epochs/phase.h"
#include "scheduler/leases/lease_requests.h"
#include "scheduler/leases/leases.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/progress.h"
#include "scheduler/scheduler.h"
#include "scheduler/state/state_gate.h"
#include "scheduler/tables.h"

namespace tarn::scheduler {

class Scheduler::Impl {
 public:
  Impl(SchedulerOptions options, SchedulerStore* store);

  void Start(TimeUs now);
  void Hear(Peer from, const Message& message, TimeUs now);
  void Settle(TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const { return next_timer_; }
  void RequestStop(TimeUs now, Outbox* out);
  void RequestCheckpoint(TimeUs now, Outbox* out);

  bool stopping() const { return stop_.has_value(); }
  bool stopped() const { return stopped_; }
  const Shutdown& stop_reason() const { return stop_ ? *stop_ : no_stop_; }
  const View& view() const { return membership_.view(); }
  Progress progress() const;
  std::vector<Note> TakeNotes() { return std::exchange(notes_, {}); }
  std::uint64_t StateHash() const;
  // At the end of a step: begins to write what it has changed, and keeps back what may be sent only behind that.
  // `sent`: messages in `out` before the step.
  void Persist(std::size_t sent, TimeUs now, Outbox* out);
  void OnWritten(const StoreWritten& written, TimeUs now, Outbox* out);

 private:
  static constexpr std::size_t kNotesMax = 1000;  // that nobody has taken

  struct Abandoned {
    CheckpointId id;
    std::string directory;
    ViewVersion since;  // no view from this one on has its order
  };

  // What a proposal (rule M1) is for, and how far it is.
  enum class Agreement : std::uint8_t { kNone, kReporting, kConfirming };

  Mailer Mail(Outbox* out) const { return {fingerprint_, out, membership_.view().routes.epoch}; }
  void Say(std::string text, bool warning = false) {
    if (notes_.size() < kNotesMax) notes_.push_back({std::move(text), warning});
  }
  void Warn(std::string text) { Say(std::move(text), true); }

  // scheduler.cc: messages.
  void Dispatch(Peer from, const Message& message, TimeUs now, Outbox* out);
  void FromShard(const ShardNode& shard, const Message& message, TimeUs now, Outbox* out);
  void FromWorker(const WorkerNode& worker, const Message& message, TimeUs now, Outbox* out);
  void PutTable(const TableSpec& spec);
  void OnLeaseRequest(const WorkerNode& worker, const LeaseRequest& request, Outbox* out);
  void OnShutdownRequest(const std::string& who, const Shutdown& shutdown, TimeUs now, Outbox* out);
  void WarnOfIdleWorkers();  // more workers than splits
  void WatchFleet(TimeUs now, Outbox* out);
  // Ends the run: tells every node. `phase` is what progress() says from now on.
  void Stop(ErrorCode code, std::string reason, const char* phase, TimeUs now, Outbox* out);
  void Fail(ErrorCode code, std::string reason, TimeUs now, Outbox* out);
  void RepeatStop(TimeUs now, Outbox* out);
  void End();
  // Stops the run as `as` says, after a checkpoint if there is anything to keep.
  void WantStop(Shutdown as, TimeUs now, Outbox* out);
  void StopAsWanted(TimeUs now, Outbox* out);
  bool AnythingDone() const;
  void WatchForWorkers(TimeUs now, Outbox* out);
  void SayWaits(TimeUs now);
  std::string WaitText(TimeUs now) const;

  // advance.cc: decisions; each returns whether anything changed.
  void Advance(TimeUs now, Outbox* out);
  bool AdvanceFormation(TimeUs now);
  bool AdvanceVerdicts();
  bool AdvanceAgreement(TimeUs now);
  bool AdvancePhase(TimeUs now, Outbox* out);
  bool EndTraining(TimeUs now, Outbox* out);
  void WarnOfOneClass(const Quality& train);
  void AfterValidation(TimeUs now, Outbox* out);
  void AfterScoring(TimeUs now, Outbox* out);
  void NextEpoch();
  bool EverybodyAtCeiling() const;
  void Answer(Outbox* out);
  std::optional<LeaseReply> AnswerLease(Incarnation worker, std::uint32_t want);

  // cut.cc: checkpoints.
  void WantCut(CutReason reason);
  bool CutUnderWay() const { return wanted_.has_value() || checkpoints_.pending() != nullptr; }
  bool WantsWholeHash(CutReason reason) const;
  bool BeginWanted(TimeUs now);  // if it needs no proposal
  void PlaceOrder(Clock clock, TimeUs now);
  bool PlaceWanted(TimeUs now);
  bool DrainsFor(CutReason reason) const;
  void WarnOfUndrained();
  bool AdvanceCut(TimeUs now, Outbox* out);
  bool PartsMissing() const;
  bool WorkersKeepSome() const;
  void WidenOrder();
  bool OwesBlob(const Cut& cut, const WorkerNode& worker) const;
  std::vector<WorkerBlob> BlobsOf(const Cut& cut);
  void WriteManifest(Outbox* out);
  void OnManifestWritten(const StoreWritten& written, TimeUs now, Outbox* out);
  void CompleteCut(Outbox* out);
  void LoseBest();
  void FailCut(ErrorCode code, const std::string& reason, TimeUs now, Outbox* out);
  void OnCheckpointRequest(Peer from, const CheckpointRequest& request, Outbox* out);
  Status MayCutNow() const;
  void SendAnswers(const std::vector<CheckpointRequests::Answer>& answers, Outbox* out) const;
  void CutInFull(const std::string& reason);
  void VoidCut(const Verdict& verdict);
  void EndCut();
  void AbandonCut();  // its directory goes once no shard writes into it any more
  void RemoveAbandoned();
  void FillManifest(Manifest* manifest, const Positions& at, bool trust_done) const;
  bool AtBoundary() const;

  // durable.cc
  void Restore(const SchedulerState& state);
  bool KnowsMore(const Heartbeat& heartbeat) const;
  SchedulerState Capture() const;
  std::uint64_t RevisionHash() const;
  bool durable() const { return options_.job.storage.durability == Durability::kLog; }
  void OnStateFailed(const StoreWritten& written, TimeUs now, Outbox* out);
  void WarnOfSlowState(TimeUs now);
  void RemoveCheckpoints(std::vector<std::string> directories);
  void RemoveOutdated(std::size_t count);

  double Seconds(TimeUs now) const;
  double TrainSeconds(TimeUs now) const;
  std::uint64_t Samples() const { return leases_.Samples(membership_.workers().LivePositions()); }

  SchedulerOptions options_;
  SchedulerStore* store_;
  std::optional<Manifest> resume_;
  std::uint64_t fingerprint_;
  TimeUs heartbeat_us_, lease_us_;

  Membership membership_;
  Leases leases_;
  LeaseRequests requests_;
  Tables tables_;
  Barriers barriers_;
  Schedule schedule_;
  Checkpoints checkpoints_;
  CheckpointRequests checkpoint_requests_;
  std::vector<Abandoned> abandoned_;   // directories to be removed
  std::vector<std::string> outdated_;  // to be removed once the state on disk says so
  std::size_t outdated_written_ = 0;   // of them, those that the state being written lists
  CheckpointId whole_;                 // to which the logs go back, and where it lies
  std::string whole_directory_;
  std::uint64_t whole_files_ = 0;    // its FilesHash
  bool best_wanted_ = false;         // by a state: the best checkpoint is not whole
  bool kept_by_checkpoint_ = false;  // the run is stopped, and nothing is lost without its logs
  bool best_lost_ = false;           // the best epoch is one whose checkpoint could not be written
  StateGate gate_;
  TimeUs next_slow_ = 0;        // when a state that does not reach the disk is warned of again
  bool state_is_over_ = false;  // it is no state of a run that goes on any more
  Totals totals_;

  Phase phase_ = Phase::kWaiting;
  Agreement agreement_ = Agreement::kNone;
  bool agreement_is_cut_ = false;
  bool agreement_drains_ = false;    // for the checkpoint of a stop (rule K11): it stays open until the end
  TimeUs drain_deadline_ = 0;        // from when on such a checkpoint is cut without those who have not drained
  ViewVersion agreement_version_;    // kConfirming: all shards must confirm it
  ViewVersion ordered_version_;      // of the view that brought the last order to cut at a clock
  bool cuts_at_clock_ = false;       // rule K1 rather than K2
  std::optional<CutReason> wanted_;  // a checkpoint that is not ordered yet
  bool state_is_cut_ = false;        // the newest cut holds the state as it is now
  int best_failures_ = 0;            // of the best checkpoint that is wanted
  TimeUs best_again_ = 0;            // when it is tried again; 0: it was not tried in vain

  bool stop_wanted_ = false, stop_cut_begun_ = false;
  Shutdown stop_as_;
  bool deserted_ = false;  // the last worker to go died, rather than left
  TimeUs stop_deadline_ = 0;
  std::optional<Shutdown> stop_;
  Shutdown no_stop_;
  std::string stop_phase_;
  bool stopped_ = false;
  TimeUs stop_since_ = 0, stop_told_ = 0, stop_heard_ = 0;
  std::map<Incarnation, Peer> to_stop_;  // told, and not known to have stopped

  TimeUs next_timer_ = 0, workers_seen_ = 0, next_waits_ = 0;
  Listening listening_;  // to the nodes
  TimeUs now_ = 0;
  bool heard_ = false;  // something that is not settled
  Outbox answers_;      // to that
  bool granted_ = false;
  TimeUs first_grant_ = 0, train_end_ = 0, train_since_ = 0;
  bool training_ = false;  // train_since_ runs
  double train_seconds_ = 0, earlier_seconds_ = 0;
  std::uint64_t batches_repeated_ = 0, earlier_samples_ = 0, earlier_died_ = 0;
  std::vector<Note> notes_;
};

}  // namespace tarn::scheduler

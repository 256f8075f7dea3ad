// Carries out checkpoints from the wish to the manifest (rules K1-K4, K6-K9): orders a cut in the view, waits for its
// parts, writes the manifest, and deals with cuts that fail, that a death voids or whose base is lost. One at a time.
//
// It decides neither when the best or the last checkpoint of a run is cut nor what a failure means for the run: Epochs
// and the scheduler do. A part of the scheduler's state machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/message.h"
#include "scheduler/checkpoints/checkpoint_removal.h"
#include "scheduler/checkpoints/checkpoint_requests.h"
#include "scheduler/checkpoints/checkpoints.h"
#include "scheduler/checkpoints/cut.h"
#include "scheduler/leases/leases.h"
#include "scheduler/membership/mailer.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/notes.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

// The contents of a manifest that concern the run rather than its checkpoints.
class ManifestSource {
 public:
  virtual ~ManifestSource() = default;
  // `at`, `trust_done`: Splits::Trained.
  virtual Manifest Make(const Positions& at, bool trust_done, TimeUs now) const = 0;
  virtual std::uint64_t workers_died() const = 0;
};

// What the coordinator has to know of the run at each call.
struct CutMoment {
  TimeUs now = 0;
  bool at_boundary = false;  // nothing is trained until the scheduler grants more leases
  bool last_epoch = false;   // no epoch follows the last one that is finished
  bool best_lost = false;    // the checkpoint of the best epoch could not be written
};

// A cut has ended: it is whole, or it could not be written and is not tried again.
struct CutEnd {
  CutReason reason = CutReason::kPeriodic;
  std::optional<Error> failed;
};

// The newest whole checkpoint, to which the logs of the shards can be cut back.
struct WholeCheckpoint {
  CheckpointId id;          // 0: none
  std::string directory;    // perhaps of the run that was resumed
  std::uint64_t files = 0;  // its FilesHash
};

class CheckpointCoordinator {
 public:
  struct Options {
    bool has_log = false;             // durability "log"
    bool at_clock = false;            // rule K1 rather than K2
    bool workers_keep_state = false;  // the job has tables of which workers keep state (rule K9)
    std::uint64_t batch_rows = 1;
    Checkpoints::Options checkpoints;
    WholeCheckpoint whole;  // that the run continues from
  };
  // What it reads and changes; all outlive it.
  struct Context {
    Membership* membership = nullptr;
    Leases* leases = nullptr;
    SchedulerStore* store = nullptr;
    Notes* notes = nullptr;
    const ManifestSource* manifests = nullptr;
  };
  CheckpointCoordinator(Options options, const Context& context);
  void Restore(const SchedulerState& state) { removal_.Restore(state); }
  void Capture(SchedulerState* state) const;

  // A checkpoint is wanted; it is ordered as soon as it can be.
  void Want(CutReason reason) { wanted_ = wanted_ ? std::max(*wanted_, reason) : reason; }
  // The same for a periodic one, if it is due.
  void WantIfDue(TimeUs now);
  void StartCounting(TimeUs now) { checkpoints_.StartCounting(now); }
  bool UnderWay() const { return wanted_.has_value() || checkpoints_.pending() != nullptr; }

  // Whether a wanted one has to wait until workers agree on a clock. One that need not is ordered here.
  bool NeedsAgreement(const CutMoment& moment);
  // Whether they also have to drain (rule K11).
  bool WantedDrains() const { return wanted_ && DrainsFor(*wanted_); }
  // Orders the wanted one; at `clock`, where shards cut at a clock. False: none is wanted, or one is under way.
  bool PlaceOrder(Clock clock, const CutMoment& moment);

  void OnShardPart(ShardId shard, const CheckpointPart& part) { checkpoints_.OnShardPart(shard, part); }
  void OnWorkerPart(Incarnation worker, const CheckpointPart& part) { checkpoints_.OnWorkerPart(worker, part); }
  // A table was added to the view, or changed.
  void OnTable();
  void OnVerdict(const Verdict& verdict);
  // Training leases were granted.
  void OnGrant();

  // Does what the parts that have arrived allow.
  struct Step {
    bool changed = false;
    std::optional<CutEnd> end;
  };
  Step Advance(const CutMoment& moment, const Mailer& mail);
  // The store has ended the write of a manifest.
  std::optional<CutEnd> OnManifestWritten(const StoreWritten& written, const CutMoment& moment, const Mailer& mail);

  // A tool or a worker asks for a checkpoint (rule K8). `may`: why there cannot be one. `waits`: whom the fleet waits
  // for.
  void OnRequest(Peer from, const CheckpointRequest& request, const Status& may, const std::string& waits,
                 const Mailer& mail);
  // While the run stops: answers a request that was answered before. False: it was not.
  bool AnswerAgain(Peer from, std::uint64_t number, const Mailer& mail);

  // The run stops: nothing is cut any more. Then: all nodes have stopped.
  void OnStop(const std::string& reason, const Mailer& mail);
  void OnStopped() { removal_.RemoveAllAbandoned(); }

  const Checkpoints& checkpoints() const { return checkpoints_; }
  CheckpointRemoval& removal() { return removal_; }
  const WholeCheckpoint& whole() const { return whole_; }
  // The newest cut holds the state as it is now.
  bool state_is_cut() const { return state_is_cut_; }
  // All shards know of the newest order to cut at a clock.
  bool OrderConfirmed() const { return context_.membership->shards().Confirmed(ordered_version_); }
  // The clock that workers must tick to for a checkpoint.
  std::optional<Clock> AwaitedClock() const;

 private:
  bool DrainsFor(CutReason reason) const;
  bool WantsWholeHash(CutReason reason, bool last_epoch) const;
  bool WorkersKeepState() const;
  std::optional<CutEnd> WriteManifest(const CutMoment& moment, const Mailer& mail);
  CutEnd Complete(const Mailer& mail);
  CutEnd FailCut(ErrorCode code, const std::string& reason, TimeUs now, const Mailer& mail);
  void CutInFull(const std::string& reason);
  void Abandon();
  void EndCut();
  static void Send(const std::vector<CheckpointRequests::Answer>& answers, const Mailer& mail);

  Options options_;
  Context context_;
  Checkpoints checkpoints_;
  CheckpointRequests requests_;
  CheckpointRemoval removal_;
  WholeCheckpoint whole_;
  std::optional<CutReason> wanted_;  // a checkpoint that is not ordered yet
  bool state_is_cut_ = false;
  ViewVersion ordered_version_;  // of the view with the newest order to cut at a clock
};

}  // namespace tarn::scheduler

// Carries out checkpoints from request to manifest (rules K1-K4, K6-K9), one at a time. Orders a cut in the view, waits
// for its parts and writes the manifest. Handles cuts that fail, cuts that the death of a worker voids, and cuts whose
// base is lost.
//
// Epochs and the scheduler decide when the best and the last checkpoint of a run are cut, and what a failure means for
// the run. A part of the scheduler's state machine.
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
#include "scheduler/membership/waits.h"
#include "scheduler/progress/notes.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

// The contents of a manifest that concern the run rather than its checkpoints.
class ManifestSource {
 public:
  virtual ~ManifestSource() = default;
  // `at`, `trust_done`: see Splits::Trained.
  virtual Manifest Make(const Positions& at, bool trust_done, TimeUs now) const = 0;
  virtual std::uint64_t workers_died() const = 0;
};

// The state of the run that the coordinator needs at each call.
struct CutMoment {
  TimeUs now = 0;
  bool at_boundary = false;  // no rows are being trained until the scheduler grants more leases
  bool last_epoch = false;   // no epoch follows the last finished one
  bool best_lost = false;    // the best epoch has no complete checkpoint
};

// The end of a cut: it is complete, or it could not be written and is not retried.
struct CutEnd {
  CutReason reason = CutReason::kPeriodic;
  std::optional<Error> failed;
};

// The newest complete checkpoint, to which the logs of the shards can be truncated.
struct WholeCheckpoint {
  CheckpointId id;          // 0: none
  std::string directory;    // may belong to the run that was resumed
  std::uint64_t files = 0;  // FilesHash of its manifest
};

class CheckpointCoordinator {
 public:
  struct Options {
    bool has_log = false;                // durability "log"
    bool at_clock = false;               // cuts at a clock (rule K1) rather than at once (K2)
    bool at_clock_for_programs = false;  // the same if a worker's program keeps state (rule K9)
    bool has_residuals = false;          // the job has tables for which workers store state (rule K9)
    std::uint64_t batch_rows = 1;
    Checkpoints::Options checkpoints;
    WholeCheckpoint whole;  // the checkpoint from which the run continues
  };
  // Objects that it reads and changes; all outlive it.
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

  // Requests a checkpoint, which is ordered as soon as possible.
  void Want(CutReason reason) { wanted_ = wanted_ ? std::max(*wanted_, reason) : reason; }
  // Requests a periodic checkpoint if it is due.
  void WantIfDue(TimeUs now);
  void StartCounting(TimeUs now) { checkpoints_.StartCounting(now); }
  // Whether a checkpoint that is wanted now is cut at a clock.
  bool CutsAtClock() const { return options_.at_clock || (options_.at_clock_for_programs && ProgramsKeepState()); }
  // Whether the current checkpoint, or else one that is wanted now, is cut at a clock.
  bool IsAtClock() const {
    if (const Cut* cut = checkpoints_.pending()) return cut->order.at_clock;
    return wanted_ ? at_clock_ : CutsAtClock();
  }
  bool UnderWay() const { return wanted_.has_value() || checkpoints_.pending() != nullptr; }

  // Whether the requested checkpoint must wait until workers agree on a clock. If not, orders it.
  bool NeedsAgreement(const CutMoment& moment);
  // Whether workers must also drain (rule K11).
  bool WantedDrains() const { return wanted_ && DrainsFor(*wanted_); }
  // Orders the requested checkpoint, at `clock` if shards cut at a clock. False: none is requested, another is in
  // progress, or the verdict on a worker must come first.
  bool PlaceOrder(Clock clock, const CutMoment& moment);

  void OnShardPart(ShardId shard, const CheckpointPart& part) { checkpoints_.OnShardPart(shard, part); }
  void OnWorkerPart(Incarnation worker, const CheckpointPart& part) { checkpoints_.OnWorkerPart(worker, part); }
  // A table was added to the view, or changed. If workers store state for it, the pending checkpoint also requests
  // blobs.
  void OnTable();
  // Abandons the pending checkpoint if the verdict voids it. If the worker joined at its clock or later, records that
  // it has trained nothing before.
  void OnVerdict(const Verdict& verdict);
  // Training leases were granted.
  void OnGrant();

  // Continues the cut as far as the received parts allow.
  struct Step {
    bool changed = false;
    std::optional<CutEnd> end;
  };
  Step Advance(const CutMoment& moment, const Mailer& mail);
  // Handles the end of a manifest's write.
  std::optional<CutEnd> OnManifestWritten(const StoreWritten& written, const CutMoment& moment, const Mailer& mail);

  // A tool or a worker requests a checkpoint (rule K8). `may`: an error if none is possible. `waits`: text about the
  // nodes that the fleet waits for.
  void OnRequest(Peer from, const CheckpointRequest& request, const Status& may, const std::string& waits,
                 const Mailer& mail);
  // Repeats the answer to an answered request, or rejects a new one beyond limits::kCheckpointRequestsMax. False:
  // nothing was sent; the request, which is added if it is new, waits.
  bool AnswerAgain(Peer from, std::uint64_t number, const Mailer& mail);

  // OnStop: the run stops, and no more checkpoints are cut. OnStopped: all nodes have stopped, or the wait for them has
  // timed out.
  void OnStop(const std::string& reason, const Mailer& mail);
  void OnStopped() { removal_.RemoveAllAbandoned(); }

  const Checkpoints& checkpoints() const { return checkpoints_; }
  CheckpointRemoval& removal() { return removal_; }
  const WholeCheckpoint& whole() const { return whole_; }
  // Whether the newest cut contains the current state. False in a fleet that has had programs: they may push without a
  // lease, which the scheduler does not see.
  bool state_is_cut() const { return state_is_cut_ && !context_.membership->has_had_programs(); }
  // Whether all shards have confirmed the newest order to cut at a clock.
  bool OrderConfirmed() const { return context_.membership->shards().Confirmed(ordered_version_); }
  // A number that changes while the pending checkpoint makes progress: while shards write it, and with each part and
  // each clock of the slowest worker.
  std::uint64_t Progress(TimeUs now) const;
  // What a checkpoint waits for.
  CutWaits Awaited() const;

 private:
  bool DrainsFor(CutReason reason) const;
  bool Drained() const;
  bool RefusesLaterPushes(const CutMoment& moment) const;
  bool MayBeLast(CutReason reason, bool last_epoch) const;
  bool TablesHaveResiduals() const;
  bool ProgramsKeepState() const;
  // Whether no worker can advance the clock; LastClock is then the one that all shards reach.
  bool NobodyTicks() const;
  Clock LastClock() const;
  std::optional<CutEnd> WriteManifest(const CutMoment& moment, const Mailer& mail);
  CutEnd Complete(const Mailer& mail);
  CutEnd FailCut(ErrorCode code, const std::string& reason, TimeUs now, const Mailer& mail);
  void CutInFull(const std::string& reason);
  // Abandons the pending cut, and requests another one unless it was periodic and serves no request.
  void Void(const std::string& why);
  void Abandon();
  void EndCut();
  static void Send(const std::vector<CheckpointRequests::Answer>& answers, const Mailer& mail);

  Options options_;
  Context context_;
  Checkpoints checkpoints_;
  CheckpointRequests requests_;
  CheckpointRemoval removal_;
  WholeCheckpoint whole_;
  std::optional<CutReason> wanted_;  // a requested checkpoint that is not ordered yet
  bool at_clock_ = false;            // it is cut at a clock; decided before workers agree on one
  bool state_is_cut_ = false;
  ViewVersion ordered_version_;  // of the view with the newest order to cut at a clock
};

}  // namespace tarn::scheduler

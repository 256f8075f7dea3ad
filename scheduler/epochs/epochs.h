// The phases of a run (rule D5): train an epoch, score it, save the best, begin another or end. Moves the leases from
// one pass over the data to the next. Returns the wanted checkpoints and the end of the run to the scheduler.
//
//   const Epochs::Step step = epochs.Advance({.now = now, .cut_under_way = ...});
//   if (step.cut) cuts.Want(*step.cut);
//   if (step.end) Stop(*step.end);
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/checkpoints/checkpoint_coordinator.h"
#include "scheduler/checkpoints/cut.h"
#include "scheduler/epochs/best_checkpoint.h"
#include "scheduler/epochs/phase.h"
#include "scheduler/epochs/schedule.h"
#include "scheduler/leases/lease_desk.h"
#include "scheduler/leases/leases.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/notes.h"
#include "scheduler/progress/train_time.h"

namespace tarn::scheduler {

class Epochs {
 public:
  struct Options {
    StorageSection storage;
    TrainSection train;
    std::vector<EpochResult> finished;            // epochs finished by earlier starts of the run
    TrainTime train_time;                         // of earlier starts
    bool best_wanted = false, best_lost = false;  // of earlier starts (BestCheckpoint)
    bool has_auc = true;                          // scores may have an AUC (HasAuc)
  };
  // All outlive this object.
  struct Context {
    Leases* leases = nullptr;
    const Membership* membership = nullptr;
    Notes* notes = nullptr;
  };
  Epochs(Options options, const Context& context);

  // The fleet is complete.
  void Begin() { phase_ = Phase::kTrain; }

  struct Facts {
    TimeUs now = 0;
    bool cut_under_way = false;  // a checkpoint is requested or ordered
    bool state_is_cut = false;   // the newest one contains the current state
    bool has_hash = false;       // the hash of the state in the newest one is known
  };
  struct Step {
    bool changed = false;
    std::optional<CutReason> cut;  // the checkpoint to request
    std::optional<Shutdown> end;   // the run ends: kOk, or kDiverged
  };
  Step Advance(const Facts& facts);

  void OnGrant(TimeUs now) { train_time_.OnGrant(now); }  // training leases were granted
  void OnBestWhole() { best_.OnWhole(); }                 // the checkpoint of the best epoch is complete
  // An attempt to write that checkpoint failed. `kept`: the best existing checkpoint, or empty.
  void OnBestFailed(TimeUs now, const std::string& kept);
  void OnStop(TimeUs now) { train_time_.End(now); }

  Phase phase() const { return phase_; }
  // Whether no rows are trained until the scheduler grants leases of another epoch.
  bool AtBoundary() const { return phase_ != Phase::kTrain || context_.leases->TrainDone(); }
  CutMoment Moment(TimeUs now) const { return {now, AtBoundary(), !schedule_.HasNextEpoch(), best_.missing()}; }
  LeaseSupply supply() const;
  const Schedule& schedule() const { return schedule_; }
  const TrainTime& train_time() const { return train_time_; }
  // Whether the last epoch is the best so far and its checkpoint is not complete.
  bool best_wanted() const { return best_.wanted() || phase_ == Phase::kBestCheckpoint; }
  const BestCheckpoint& best() const { return best_; }

 private:
  bool KeepsCheckpoints() const { return options_.storage.durability != Durability::kNone; }
  bool AllAtCeiling() const;
  Step EndTraining(const Facts& facts);
  Step AfterValidation(const Facts& facts);
  Step AfterScoring(const Facts& facts);
  Step AfterBest(const Facts& facts);
  Step NextEpoch(const Facts& facts);
  Step WantBest();
  void WarnOfOneClass(const Quality& train) const;
  void NoteScores(const EpochResult& result) const;

  Options options_;
  Context context_;
  Phase phase_ = Phase::kWaiting;
  Schedule schedule_;
  TrainTime train_time_;
  BestCheckpoint best_;
};

}  // namespace tarn::scheduler

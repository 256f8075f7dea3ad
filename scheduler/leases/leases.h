// Assigns rows to workers for training and scoring, and derives their clocks (rules D1-D6): the splits of the epoch and
// of the current evaluation, the grants, and the ceiling, which is the clock at which the epoch ends.
//
// A part of the scheduler's state machine: no messages, no time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/leases/data_sets.h"
#include "scheduler/leases/splits.h"

namespace tarn::scheduler {

class Leases {
 public:
  explicit Leases(const Job& job, Clock start_clock);
  // Repeats the grants of a recorded run: lease i + 1 goes to the worker of rank order[i], and no further one is
  // granted.
  void SetOrder(std::vector<WorkerRank> order) { order_ = std::move(order); }
  // Continues from a checkpoint, or if Restore follows, from the state of the scheduler. Must be called before workers
  // join. A checkpoint in which the epoch is not trained yet gets the splits of this job.
  void Resume(const DataState& state, bool restores = false);

  const DataSets& data() const { return data_; }
  // The first call with nonzero sizes begins the epoch; later ones must agree (see DataSets::Set).
  Status SetSizes(const SetRows& rows);

  // Join adds a worker of the cohort; End removes it. `end`: the clock of the verdict.
  void Join(Incarnation worker, WorkerRank rank, Clock join);
  // `take_back`: see Splits::Take.
  void End(Incarnation worker, const DataPosition& position, Clock end, bool take_back = false);

  // Grants training data to a worker, or orders it to jump (rules C5, D4); nullopt: the worker has to wait.
  std::optional<LeaseReply> AnswerTraining(Incarnation worker, std::uint32_t want);
  // The same for the data set that is being scored.
  std::optional<LeaseReply> AnswerEvaluation(Incarnation worker, std::uint32_t want);
  // Whether there is data that a worker must not be granted yet, because of SetOrder. It then waits.
  bool AwaitsTurn(Incarnation worker) const;
  // The order to tick to the ceiling; nullopt: the worker already has it.
  std::optional<LeaseReply> AnswerJump(Incarnation worker);
  void Done(Incarnation worker, const LeaseDone& done);
  // The number of clocks that the worker has skipped so far (rule C8): its leases end as many clocks later.
  void NoteSkipped(Incarnation worker, std::uint64_t clocks);
  // Whether the worker has leases that are not done.
  bool HasOpen(Incarnation worker) const { return train_.OpenLeases(worker) + evaluation_.OpenLeases(worker) > 0; }

  // During a checkpoint at a clock (rule K1). With splits by rank, no worker is granted splits that would take it
  // beyond the ceiling. Partly trained splits of workers that end meanwhile are kept until Release.
  void Hold() { holding_ = true; }
  void Release();

  bool TrainDone() const { return data_.known() && train_.AllDone(); }
  void BeginEpoch(std::uint32_t epoch);  // its base is the ceiling of the previous one
  void BeginEvaluation(LeasePurpose purpose);
  bool EvaluationDone() const { return evaluation_.AllDone(); }

  std::uint32_t epoch() const { return epoch_; }
  Clock ceiling() const;
  // Raises the ceiling to at least `clock`.
  void RaiseCeiling(Clock clock) {
    if (clock > floor_) ++revision_;
    floor_ = std::max(floor_, clock);
  }
  const Splits& train() const { return train_; }
  const Splits& evaluation() const { return evaluation_; }
  bool granted_any() const { return granted_any_; }
  LeaseId last_lease() const { return last_lease_; }  // the newest one granted

  // Capture saves the state of the scheduler; Restore restores it, after Resume and before workers join.
  DataState Capture(std::vector<KeptLease>* kept, LeaseId* last) const;
  void Restore(const std::vector<KeptLease>& kept, LeaseId last);
  // Incremented by each change of the result of Capture.
  std::uint64_t revision() const { return revision_; }

  // The data section of a manifest. `at`, `trust_done`: see Splits::Trained.
  DataState Snapshot(const Positions& at, bool trust_done) const;
  // Trained rows of all epochs.
  std::uint64_t Samples(const Positions& at) const;

 private:
  struct Worker {
    WorkerRank rank;
    Clock sent;                 // its join clock, or the newest clock to which it was ordered to jump
    Clock own;                  // its clock after its leases, with skipped clocks
    std::uint64_t skipped = 0;  // clocks (rule C8)

    // Upper bound of its clocks, except for clocks that it has skipped and not reported yet.
    Clock bound() const { return std::max(own, sent); }
  };

  bool MayGrant(WorkerRank rank) const {
    return !order_ || (last_lease_.value < order_->size() && (*order_)[last_lease_.value] == rank);
  }
  LeaseReply Jump(Worker* worker, Clock clock);
  std::vector<LeaseGrant> Grant(Splits* splits, Incarnation id, Worker* worker, std::uint32_t want);

  DataSets data_;
  std::optional<std::vector<WorkerRank>> order_;
  bool holding_ = false, granted_any_ = false;
  std::uint32_t epoch_ = 0;
  Clock base_, floor_;
  Splits train_, evaluation_;
  std::map<Incarnation, Worker> workers_;
  LeaseId last_lease_;
  std::uint64_t revision_ = 0;
};

}  // namespace tarn::scheduler

// Which worker trains or scores which rows, and the clocks that follow from it (rules D1-D6): the splits of the epoch
// and of the evaluation under way, what a worker that asks gets, and the ceiling: the clock at which the epoch ends.
//
// A part of the scheduler's state machine: no messages, no time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
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
  // Continues from a checkpoint; before any other call.
  void Resume(const DataState& state);

  const DataSets& data() const { return data_; }
  // The first call that knows the sizes opens the epoch; later ones must agree.
  Status SetSizes(const SetRows& rows);

  // Workers in the cohort. `end`: the clock of the verdict.
  void Join(Incarnation worker, WorkerRank rank, Clock join);
  // take_back: Splits::Take.
  void End(Incarnation worker, const DataPosition& position, Clock end, bool take_back = false);

  // What a worker gets that asks for training data, or nothing: it has to wait.
  std::optional<LeaseReply> AnswerTraining(Incarnation worker, std::uint32_t want);
  // The same for the set that is being scored.
  std::optional<LeaseReply> AnswerEvaluation(Incarnation worker, std::uint32_t want);
  // The order to tick to the ceiling, or nothing: the worker has it already.
  std::optional<LeaseReply> AnswerJump(Incarnation worker);
  void Done(Incarnation worker, const LeaseDone& done);
  // Whether the worker holds leases that are not done.
  bool HasOpen(Incarnation worker) const { return train_.OpenLeases(worker) + evaluation_.OpenLeases(worker) > 0; }

  // While a checkpoint at a clock is under way (rule K1): by rank, no worker is granted splits that take it beyond the
  // ceiling; part-trained splits of workers that end meanwhile wait for Release.
  void Hold() { holding_ = true; }
  void Release();

  bool TrainDone() const { return data_.known() && train_.AllDone(); }
  void BeginEpoch(std::uint32_t epoch);  // at base = the ceiling of the one before
  void BeginEvaluation(LeasePurpose purpose);
  bool EvaluationDone() const { return evaluation_.AllDone(); }

  std::uint32_t epoch() const { return epoch_; }
  Clock ceiling() const;
  // The ceiling becomes at least this.
  void RaiseCeiling(Clock clock) {
    if (clock > floor_) ++revision_;
    floor_ = std::max(floor_, clock);
  }
  const Splits& train() const { return train_; }
  const Splits& evaluation() const { return evaluation_; }
  bool granted_any() const { return granted_any_; }
  LeaseId last_lease() const { return last_lease_; }  // the newest that was granted

  // For the scheduler's state, and back: after Resume, before any other call.
  DataState Capture(std::vector<KeptLease>* kept, LeaseId* last) const;
  void Restore(const std::vector<KeptLease>& kept, LeaseId last);
  // Grows with each change of what Capture returns.
  std::uint64_t revision() const { return revision_; }

  // The data section of a manifest. at, trust_done: Splits::Trained.
  DataState Snapshot(const Positions& at, bool trust_done) const;
  // Trained rows of all epochs.
  std::uint64_t Samples(const Positions& at) const;

 private:
  struct Worker {
    WorkerRank rank;
    Clock sent;   // its join clock, or the newest clock that it was ordered to jump to
    Clock bound;  // none of its clocks can pass this
  };

  LeaseReply Jump(Worker* worker, Clock clock);
  std::vector<LeaseGrant> Grant(Splits* splits, Incarnation id, Worker* worker, std::uint32_t want);

  DataSets data_;
  bool holding_ = false, granted_any_ = false;
  std::uint32_t epoch_ = 0;
  Clock base_, floor_;
  Splits train_, evaluation_;
  std::map<Incarnation, Worker> workers_;
  LeaseId last_lease_;
  std::uint64_t revision_ = 0;
};

}  // namespace tarn::scheduler

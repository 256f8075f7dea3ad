// Who works on which data, and the clocks that follow from it (rules D1-D6): sizes of the data sets, splits of the
// epoch and of the evaluation under way, what a worker that asks gets, and the ceiling of the epoch's clocks.
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
#include "scheduler/leases/splits.h"

namespace tarn::scheduler {

class Leases {
 public:
  explicit Leases(const Job& job, Clock start_clock);
  // Goes on where a checkpoint was cut; before any other call.
  void Resume(const DataState& state);

  bool sizes_known() const { return sizes_known_; }
  const std::uint64_t* rows() const { return rows_; }
  std::uint64_t split_rows() const { return split_rows_; }  // of the training set; its last split may be shorter
  // The first call fixes the sizes and opens the epoch; later ones must agree.
  Status SetSizes(const std::uint64_t (&rows)[3]);

  // Workers in the cohort. `end`: the clock of the verdict.
  void Join(Incarnation worker, WorkerRank rank, Clock join);
  // take_back: Splits::Take.
  void End(Incarnation worker, const DataPosition& position, Clock end, bool take_back = false);

  // Training: answers a request; nothing: it has to wait.
  std::optional<LeaseReply> AnswerTraining(Incarnation worker, std::uint32_t want);
  // Evaluation: as above, with splits of the set that is being scored.
  std::optional<LeaseReply> AnswerEvaluation(Incarnation worker, std::uint32_t want);
  // Tells the worker to tick to the ceiling, if it has not been told; nothing: it has.
  std::optional<LeaseReply> AnswerJump(Incarnation worker);
  void Done(Incarnation worker, const LeaseDone& done);
  // Whether it holds leases that are not done.
  bool HasOpen(Incarnation worker) const { return train_.OpenLeases(worker) + evaluation_.OpenLeases(worker) > 0; }

  // While a checkpoint at a clock is under way (rule K1): by rank, nobody is granted what takes it beyond the
  // ceiling; part-trained splits of workers that end meanwhile wait for Release.
  void Hold();
  void Release();
  bool holding() const { return holding_; }

  bool TrainDone() const { return sizes_known_ && train_.AllDone(); }
  void BeginEpoch(std::uint32_t epoch);  // at base = the ceiling of the one before
  void BeginEvaluation(LeasePurpose purpose);
  bool EvaluationDone() const { return evaluation_.AllDone(); }

  std::uint32_t epoch() const { return epoch_; }
  bool by_rank() const { return by_rank_; }
  Clock ceiling() const;
  // The ceiling becomes at least this.
  void RaiseCeiling(Clock clock) {
    if (clock > floor_) ++revision_;
    floor_ = std::max(floor_, clock);
  }
  const Splits& train() const { return train_; }
  const Splits& evaluation() const { return evaluation_; }
  bool granted_any() const { return granted_any_; }
  LeaseId last_lease() const { return last_lease_; }  // given out

  // For the scheduler's state, and back: after Resume, before any other call.
  DataState Capture(std::vector<KeptLease>* kept, LeaseId* last) const;
  void Restore(const std::vector<KeptLease>& kept, LeaseId last);
  // Grows with whatever Capture would say anew.
  std::uint64_t revision() const { return revision_; }

  DataState Snapshot(const Positions& at, bool trust_done) const;
  // Trained rows of all epochs.
  std::uint64_t Samples(const Positions& at) const;

 private:
  struct Worker {
    WorkerRank rank;
    Clock told;   // its join clock, or the newest clock that it was told to jump to
    Clock bound;  // no clock of it can pass this
  };

  LeaseReply Jump(Worker* worker, Clock clock);
  std::vector<LeaseGrant> Grant(Splits* splits, Incarnation id, Worker* worker, std::uint32_t want);
  Splits MakeTrain(const std::vector<std::uint64_t>& trained) const;
  std::uint64_t EvaluationSplitRows(std::uint64_t rows) const;

  std::uint32_t ranks_, batch_rows_;
  bool by_rank_, shuffle_;
  std::uint64_t seed_, split_rows_;
  bool sizes_known_ = false, holding_ = false, granted_any_ = false;
  std::uint64_t rows_[3] = {0, 0, 0};
  std::vector<std::uint64_t> resumed_;
  std::uint32_t epoch_ = 0;
  Clock base_, floor_;
  Splits train_, evaluation_;
  std::map<Incarnation, Worker> workers_;
  LeaseId last_lease_;
  std::uint64_t revision_ = 0;
};

}  // namespace tarn::scheduler

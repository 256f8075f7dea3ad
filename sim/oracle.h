// The invariants of every run, checked from outside the state machines against the simulator's own records.
//
//   - nothing acknowledged is lost, nothing is applied twice: values of the oracle table count pushes exactly
//     (push_counts.h)
//   - the staleness bound holds on every pull, against the workers' true clocks and against the values seen, whether
//     they come from a shard or from the worker's cache; in evaluation no push is missing
//   - versions, epochs, clocks and minimum clocks never go back
//   - each row of data is trained exactly once per epoch, by pushes that count
//   - rows of an aggregated table are created and expire as computed from their pushes (life_model.h)
//   - a checkpoint of a clean stop contains every row of data whose push was acknowledged, and no other
//   - a checkpoint at a clock contains exactly the pushes before that clock
//   - the last checkpoint of a run contains every push that a shard has accepted
//   - the residuals of a worker with top-k pushes are in the checkpoint, as of its clock
//   - pushes have the versions and, where their rule needs them, the rows that were pulled (push_origins.h)
//   - the version of a partition is the number of its sections that were applied
//   - rows that workers assign and delete have the values that their actions give in this order (row_changes.h)
//   - a checkpoint contains every row as of its cut, whatever was pushed while it was copied (sim_store.h)
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "core/message.h"
#include "sim/cohorts.h"
#include "sim/program_states.h"
#include "sim/push_counts.h"
#include "sim/push_origins.h"
#include "sim/residual_states.h"
#include "sim/row_changes.h"
#include "sim/scenario.h"

namespace tarn::sim {

class Oracle {
 public:
  explicit Oracle(const Scenario& scenario) : scenario_(scenario) {}
  // The run continues from this checkpoint, in which the oracle table has these values.
  void ResumeFrom(const Manifest& manifest, std::map<Key, float> values);
  PushCounts& counts() { return counts_; }
  ResidualStates& residuals() { return residuals_; }
  ProgramStates& programs() { return programs_; }
  PushOrigins& origins() { return origins_; }
  RowChanges& changes() { return changes_; }

  Cohorts& cohorts() { return cohorts_; }
  void OnView(const View& view) { Check(cohorts_.OnView(view)); }

  // Counts the push ids of an acknowledged push: one for each of its sections.
  void OnPushAcked(std::size_t sections) { acked_push_ids_ += sections; }
  // A shard has accepted a push. After a restart, pushes beyond the common clock count no more.
  void OnPushAccepted(Incarnation incarnation, Clock clock) {
    accepted_[incarnation] = std::max(accepted_[incarnation], clock);
  }
  void ForgetAccepted() { accepted_.clear(); }
  // Checks that the last checkpoint of a stop or of a finished job, cut at this clock, contains every push that a shard
  // has accepted (rule K12). nullopt: there is none.
  void CheckLastCut(std::optional<Clock> cut);
  // Checks the answer of a shard to a pull for use at `use` on a table with this bound.
  void CheckGroundTruth(Clock use, std::uint64_t bound, std::uint32_t backups) {
    Check(cohorts_.CheckGroundTruth(use, bound, backups));
  }

  // Checks the value of a key that a pull returned.
  void CheckCount(const PushCounts::Pulled& pull, Key key, float value);
  // The same for a row of changes(). `mark`: changes().issued() when the pull was issued.
  void CheckChanged(Incarnation incarnation, Clock clock, Key key, float value, std::size_t mark);
  // Checks the staleness that the pull reported.
  void CheckStaleness(const ConsistencySpec& spec, std::uint64_t staleness);
  // Counts rows that were found in a worker's cache, and pushes that were combined with others.
  void OnRequestsSaved(std::uint64_t count) { requests_saved_ += count; }
  // After the run: checks the final value of a key, at the minimum clock `minimum`.
  void CheckFinalValue(Key key, float value, Clock minimum);
  // Checks the value of a key in a checkpoint at this clock (rule K1).
  void CheckCutValue(Clock cut, Key key, float value);
  // Checks the position of training in a checkpoint at a clock: the rows of data that it calls trained are those whose
  // pushes it contains (rules K1 and K4).
  void CheckCutData(const Manifest& manifest);
  // Checks the value of a key in a checkpoint that was copied while workers trained (rule K2).
  void CheckCopiedValue(const Manifest& manifest, Key key, float value);
  // Checks the checkpoint of a stopped run, in which the oracle table has these values (rule K11).
  void CheckStopped(const Manifest& manifest, const std::map<Key, float>& values);
  // After the run: checks that each row of data was trained exactly once per epoch, by pushes that count.
  void CheckData();

  void Fail(std::string what);
  // Records a failure unless `wrong` is empty.
  void Check(std::string wrong) {
    if (!wrong.empty()) Fail(std::move(wrong));
  }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  std::uint64_t acked_push_ids() const { return acked_push_ids_; }
  std::uint64_t requests_saved() const { return requests_saved_; }
  // All keys that were pushed, assigned or deleted.
  std::vector<Key> Keys() const;

 private:
  const Scenario scenario_;
  Cohorts cohorts_;
  PushCounts counts_{scenario_, &cohorts_};
  RowChanges changes_{scenario_, &cohorts_};
  ResidualStates residuals_;
  ProgramStates programs_;
  PushOrigins origins_;
  std::map<Incarnation, Clock> accepted_;  // the highest clock of an accepted push
  DataState resumed_;                      // of the checkpoint from which the run continues
  std::uint64_t acked_push_ids_ = 0, requests_saved_ = 0;
  std::string failure_;
};

}  // namespace tarn::sim

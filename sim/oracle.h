// The invariants of every run, checked from outside the state machines against the simulator's own records.
//
//   - nothing acknowledged is lost, nothing is applied twice: values of the oracle table count pushes exactly
//   - the staleness bound holds on every pull, against the workers' true clocks and against the values seen, whether
//     they come from a shard or from the worker's cache; in evaluation no push is missing
//   - versions, epochs, clocks and minimum clocks never go back
//   - each row of data is trained exactly once per epoch, by pushes that count
//   - rows of an aggregated table are created and expire as computed from their pushes (life_model.h)
//   - a checkpoint of a clean stop contains every row of data whose push was acknowledged, and no other
//   - a checkpoint at a clock contains exactly the pushes before that clock
//   - the residuals of a worker with top-k pushes are in the checkpoint, as of its clock
//   - pushes have the versions and, where their rule needs them, the rows that were pulled (push_origins.h)
//   - the version of a partition is the number of its sections that were applied
//   - rows that workers assign and delete have the values that their actions give in this order (row_changes.h)
//   - a checkpoint contains every row as of its cut, whatever was pushed while it was copied (sim_store.h)
//
// The oracle table starts at zero and uses plain SGD, or delay compensation of weight 0, with rate 1 and gradient
// -count, so that a value is a count.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "core/message.h"
#include "sim/closings.h"
#include "sim/cohorts.h"
#include "sim/life_model.h"
#include "sim/program_states.h"
#include "sim/push_origins.h"
#include "sim/residual_states.h"
#include "sim/row_changes.h"
#include "sim/scenario.h"

namespace tarn::sim {

// Keys of a row of data: a pure function of the scenario and the row, duplicates possible.
void KeysOfRow(const Scenario& scenario, std::uint64_t row, std::vector<Key>* keys);

class Oracle {
 public:
  explicit Oracle(const Scenario& scenario);
  // The run continues from this checkpoint, in which the oracle table has these values.
  void ResumeFrom(const Manifest& manifest, std::map<Key, float> values);
  ResidualStates& residuals() { return residuals_; }
  ProgramStates& programs() { return programs_; }
  PushOrigins& origins() { return origins_; }
  RowChanges& changes() { return changes_; }

  Cohorts& cohorts() { return cohorts_; }
  void OnView(const View& view) {
    Check(cohorts_.OnView(view));
    view_ = view;
  }

  // A worker incarnation issued the push of a batch. Returns the record's number. `sent`: the part of the push that is
  // sent (top-k); null: all of it.
  std::size_t OnPushIssued(Incarnation, Clock, std::uint32_t epoch, std::uint64_t first_row, std::uint64_t rows,
                           const std::map<Key, float>* sent = nullptr);
  void OnPushAcked(std::size_t record, std::size_t sections);
  void OnOtherPushAcked(std::size_t sections) { acked_push_ids_ += sections; }
  // Checks the answer of a shard to a pull for use at `use` on a table with this bound.
  void CheckGroundTruth(Clock use, std::uint64_t bound, std::uint32_t backups) {
    Check(cohorts_.CheckGroundTruth(use, bound, backups));
  }
  // A shard has restored these partitions; `minimum`: its minimum clock. It replays its log next.
  void OnRestored(Clock minimum, std::span<const PartitionId> owned) {
    for (auto& [table, closings] : closings_) closings.OnRestored(minimum, owned);
  }
  // A shard has closed a clock of a table with backup workers.
  void OnTableClosed(TableId table, Clock clock, std::uint32_t divisor, std::span<const server::Contribution> counted,
                     std::uint32_t backups) {
    Check(closings_[table].OnClosed(clock, divisor, counted, backups, cohorts_));
  }

  // Checks the `value` of `key` that a pull of `incarnation` for use at `clock` returned; `mark` is records() when the
  // pull was issued. `settled`: every live worker had already ticked to the clock, so no push may be missing under any
  // bound. (A worker that dies holds the minimum clock back until all shards know its end.) `late`: the worker was
  // late, so the value may be that of a later clock (rule C8).
  void CheckValue(Incarnation incarnation, Clock clock, Key key, float value, std::size_t mark, bool settled,
                  bool late);
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
  std::size_t records() const { return records_.size(); }
  std::uint64_t acked_push_ids() const { return acked_push_ids_; }
  std::uint64_t requests_saved() const { return requests_saved_; }
  // All keys that were pushed, assigned or deleted.
  std::vector<Key> Keys() const;

 private:
  struct Record {
    Incarnation incarnation;
    Clock clock;
    std::uint32_t epoch;
    std::uint64_t first_row, rows;
    bool acked = false;
  };
  struct Contribution {
    std::size_t record;
    float count;
  };

  std::vector<Key> PushedKeys() const;
  double Base(Key key) const;
  bool Counts(const Record& record) const { return cohorts_.Has(record.incarnation, record.clock); }
  bool IsKept(const Record& record) const;  // in the checkpoint of a clean stop
  // How much a push to an aggregated table adds to a key.
  double Part(Key key, const Contribution& contribution) const;
  std::vector<ClockPart> PartsOf(Key key) const;
  // Sets both bounds to the exact value if the life model applies.
  void Narrow(Key key, Clock minimum, double* least, double* most) const;

  Scenario scenario_;
  std::vector<Record> records_;
  std::unordered_map<Key, std::vector<Contribution>> by_key_;
  Cohorts cohorts_;
  View view_;  // the newest one
  std::map<TableId, Closings> closings_;
  RowChanges changes_{scenario_, &cohorts_};
  std::optional<LifeModel> lives_;  // none if the model does not apply
  std::map<Key, float> base_;
  ResidualStates residuals_;
  ProgramStates programs_;
  PushOrigins origins_;
  std::uint32_t first_epoch_ = 0;
  std::vector<bool> trained_before_;  // by row; before this run, in its first epoch
  std::uint64_t acked_push_ids_ = 0, requests_saved_ = 0;
  std::string failure_;
};

}  // namespace tarn::sim

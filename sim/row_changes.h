// Rows of the oracle table that workers assign and delete (rule A8), and the values that they may then have. These keys
// are never in the data. Each key has one writer at a time, so the actions on it have an order: in an aggregated table
// the keys belong to a rank, whose actions depend only on the clock; in others they belong to an incarnation. Some
// actions are pushes of gradients: in an aggregated table they take effect before the assignments and deletions of
// their clock, in others in order.
//
// Checks return the error, or an empty string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "sim/cohorts.h"
#include "sim/scenario.h"

namespace tarn::sim {

class RowChanges {
 public:
  // A push of one key. kAssign: both values of the row become `value`. kStep: a gradient of -1.
  struct Action {
    PushAction action = PushAction::kAssign;
    Key key = 0;
    float value = 0;
  };

  // `cohorts` outlives this object.
  RowChanges(const Scenario& scenario, const Cohorts* cohorts);

  // Whether the key is one of those that workers assign and delete.
  static bool IsChanged(Key key) { return key >> kKeyBits == kPrefix; }
  // The run continues from a checkpoint in which one of these keys has this value.
  void SetBase(Key key, float value) { base_[key] = value; }

  // What a worker does in a clock, in order.
  std::vector<Action> ActionsAt(WorkerRank rank, Incarnation incarnation, Clock clock) const;
  // The keys that a worker reads for a clock: all of its own, and up to two others that were changed.
  std::vector<Key> KeysToRead(WorkerRank rank, Incarnation incarnation, Clock clock) const;

  // A worker has issued an action; returns its number.
  std::size_t OnIssued(Incarnation incarnation, Clock clock, const Action& action);
  void OnAcked(std::size_t number) { records_[number].acked = true; }
  std::size_t issued() const { return records_.size(); }
  std::vector<Key> Keys() const;

  // Checks the value that a pull for use at `use` returned. `mark`: issued() when the pull was issued. `tolerance`: the
  // rounding error of its codec.
  std::string CheckPulled(Incarnation incarnation, Clock use, Key key, float value, std::size_t mark,
                          double tolerance) const;
  // Check the value after the run; in a checkpoint at a clock; in the checkpoint of a clean stop without aggregated
  // tables.
  std::string CheckFinal(Key key, float value) const;
  std::string CheckCut(Clock cut, Key key, float value) const;
  std::string CheckStopped(Key key, float value) const;

 private:
  static constexpr std::uint64_t kPrefix = 0x6368616e67, kKeyBits = 24;
  struct Record {
    Incarnation incarnation;
    Clock clock;
    Action action;
    bool acked = false;
  };

  // In a table with backup workers, a shard applies the changes of late workers on arrival (rule C8), as in an
  // immediate table.
  bool may_be_late() const { return scenario_.counts.backup_workers != 0; }
  bool aggregated() const { return scenario_.counts.apply == ApplyMode::kAggregated && !may_be_late(); }
  std::vector<Key> KeysOf(WorkerRank rank, Incarnation incarnation) const;
  // The actions on a key, in order.
  std::vector<const Record*> On(Key key) const;
  bool Counts(const Record& record) const { return cohorts_->Has(record.incarnation, record.clock); }
  bool IsKept(const Record& record) const;
  double Base(Key key) const;
  // The value of a row of an aggregated table when the clocks before `end` have closed.
  double ClosedValue(Key key, Clock end) const;
  // The values after the first n actions on a key, for n from `least` to `most`.
  std::vector<double> ValuesAfter(Key key, std::size_t least, std::size_t most) const;
  std::string Check(Key key, float value, const std::vector<double>& allowed, double tolerance,
                    const std::string& where) const;

  const Scenario scenario_;
  const Cohorts* cohorts_;
  std::vector<Record> records_;
  std::map<Key, std::vector<std::size_t>> by_key_;
  std::map<Key, float> base_;
};

}  // namespace tarn::sim

// What must hold in every run, checked from outside the state machines against the simulator's own records.
//
//   - nothing acknowledged is lost, nothing is applied twice: values of the oracle table count pushes, exactly
//   - the staleness bound holds on every pull, against the workers' true clocks and against the values seen, whether
//   they
//     come from a shard or from the worker's cache; in evaluation nothing is missing
//   - versions, epochs, clocks and minimum clocks never go back
//   - each row of data is trained exactly once an epoch, by pushes that count
//   - rows of an aggregated table come and go as their pushes say (life_model.h), if nothing else decides
//   - a checkpoint of a clean stop holds every row of data whose push was acknowledged, and no other
//   - a checkpoint at a clock holds what was pushed before it and nothing else
//   - what a worker that sends the largest rows alone has kept is in the checkpoint, as of its clock
//   - a checkpoint holds every row as it was at its cut, whatever was pushed while it was copied (sim_store.h)
//
// The oracle table starts at zero and uses plain SGD with rate 1 and gradient -count, so that a value is a count.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/codec/manifest.h"
#include "core/message.h"
#include "server/shard/shard.h"
#include "sim/life_model.h"
#include "sim/scenario.h"
#include "sim/top_k_model.h"

namespace tarn::sim {

// Keys of a row of data: a pure function of the scenario and the row, duplicates possible.
void KeysOfRow(const Scenario& scenario, std::uint64_t row, std::vector<Key>* keys);

class Oracle {
 public:
  explicit Oracle(const Scenario& scenario);
  // The run goes on from this checkpoint, in which the oracle table has these values.
  void ResumeFrom(const Manifest& manifest, std::map<Key, float> values);
  // What its blobs say that workers had kept. It is taken once: who takes a worker's place begins with nothing.
  void PutKept(WorkerRank rank, std::vector<KeptCount> kept) { restored_[rank] = std::move(kept); }
  std::vector<KeptCount> TakeKept(WorkerRank rank);
  // A worker has this from its clock on, of the oracle table; and had it at a clock (null: not known).
  void OnKept(Incarnation worker, Clock clock, std::vector<KeptCount> kept);
  const std::vector<KeptCount>* KeptAt(Incarnation worker, Clock clock) const;

  // A scheduler starts that knows of no view.
  void BeginAnew() {
    last_version_ = {};
    last_epoch_ = {};
    entries_.clear();
  }
  // The newest view: remembers every incarnation's entry and checks that versions only grow.
  void OnView(const View& view);

  // A worker incarnation issued the push of a batch. Returns the record's number.
  // `sent`: what went out of it, if that is not all.
  std::size_t OnPushIssued(Incarnation, Clock, std::uint32_t epoch, std::uint64_t first_row, std::uint64_t rows,
                           const std::map<Key, float>* sent = nullptr);
  void OnPushAcked(std::size_t record, std::size_t sections);
  void OnOtherPushAcked(std::size_t sections) { acked_push_ids_ += sections; }
  void OnWorkerGone(Incarnation);
  bool nobody_died() const { return gone_.empty(); }
  // The clock that a worker is in, and what was last known of it; nothing: its clock of joining.
  void OnClock(Incarnation worker, Clock clock);
  // A shard has answered a pull for use at this clock on a table with this bound: no live worker may be further back.
  void CheckGroundTruth(Clock use, std::uint64_t bound);

  // A pull of `incarnation` for use at `clock` returned `value` for `key`; `mark` is records() when it was issued.
  // `settled`: every live worker had ticked to the clock before, so that no bound allows for less. (One that dies holds
  // the minimum clock back until all shards know its end.)
  void CheckValue(Incarnation incarnation, Clock clock, Key key, float value, std::size_t mark, bool settled);
  // And said that it may be so many clocks behind.
  void CheckStaleness(const ConsistencySpec& spec, std::uint64_t staleness);
  // Rows that were not pulled, and pushes that were not sent alone.
  void OnSpared(std::uint64_t times) { spared_ += times; }
  // After the run: the final value of a key, where the minimum clock is `minimum`.
  void CheckFinalValue(Key key, float value, Clock minimum);
  // A checkpoint at this clock has this value for a key (rule K1).
  void CheckCutValue(Clock cut, Key key, float value);
  // The run was stopped behind this checkpoint, in which the oracle table has these values (rule K11).
  void CheckStopped(const Manifest& manifest, const std::map<Key, float>& values);
  void CheckData();

  void Fail(std::string what);
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  std::size_t records() const { return records_.size(); }
  std::uint64_t acked_push_ids() const { return acked_push_ids_; }
  std::uint64_t spared() const { return spared_; }
  // Every key that any push touched.
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

  double Base(Key key) const;
  double Cohort(Clock clock) const;
  bool Counts(const Record& record) const;  // by the verdicts known, aggregated
  bool HasEnded(Incarnation incarnation) const;
  bool IsKept(const Record& record) const;  // by the checkpoint of a stop
  std::vector<ClockPart> PartsOf(Key key) const;
  void Narrow(Key key, Clock minimum, double* least, double* most) const;

  Scenario scenario_;
  std::vector<Record> records_;
  std::unordered_map<Key, std::vector<Contribution>> by_key_;
  std::map<Incarnation, WorkerEntry> entries_;
  std::map<Incarnation, bool> gone_;
  std::map<Incarnation, Clock> clocks_;
  View view_;
  std::optional<LifeModel> lives_;  // if it knows them
  std::map<Key, float> base_;
  std::map<WorkerRank, std::vector<KeptCount>> restored_;
  std::map<Incarnation, std::map<Clock, std::vector<KeptCount>>> kept_;
  std::uint32_t first_epoch_ = 0;
  std::vector<bool> trained_before_;  // by row, of the first epoch
  ViewVersion last_version_;
  Epoch last_epoch_;
  std::uint64_t acked_push_ids_ = 0, spared_ = 0;
  std::string failure_;
};

// Checks one shard's own events: sequences without gap or repeat, minimum clocks that justify each answer.
class ShardChecker : public server::ShardObserver {
 public:
  // spec_of: the consistency of a table.
  ShardChecker(Oracle* oracle, std::function<ConsistencySpec(TableId)> spec_of)
      : oracle_(oracle), spec_of_(std::move(spec_of)) {}
  void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) override;
  void OnWatermark(Incarnation incarnation, PartitionId partition, Sequence sequence) override {
    last_[{incarnation, partition}] = sequence;
  }
  void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) override;
  void OnPullServed(Incarnation, TableId, Clock use, Clock minimum) override;
  void OnClockClosed(Clock) override;
  // The highest sequence that counted or was voided.
  Sequence Last(Incarnation incarnation, PartitionId partition) const;

 private:
  Oracle* oracle_;
  std::function<ConsistencySpec(TableId)> spec_of_;
  std::map<std::pair<Incarnation, PartitionId>, Sequence> last_;
  Clock last_minimum_;
  bool closed_any_ = false;
  Clock last_closed_;
};

}  // namespace tarn::sim

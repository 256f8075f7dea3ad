// Rows of the oracle table whose values count pushes, and the values that they may have. The table starts at zero and
// uses plain SGD, or delay compensation of weight 0, with rate 1 and gradient -count, so that a value is a count. The
// other rows of the table are in row_changes.h.
//
// Checks return the error, or an empty string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/types.h"
#include "server/clock/contribution.h"
#include "sim/closings.h"
#include "sim/cohorts.h"
#include "sim/life_model.h"
#include "sim/scenario.h"

namespace tarn::sim {

// Keys of a row of data: a pure function of the scenario and the row, duplicates possible.
void KeysOfRow(const Scenario& scenario, std::uint64_t row, std::vector<Key>* keys);

class PushCounts {
 public:
  // The rows of data that a push trains, in an epoch.
  struct DataRows {
    std::uint32_t epoch = 0;
    std::uint64_t first = 0, count = 0;
  };
  // A pull of `incarnation` for use at `clock`.
  struct Pulled {
    Incarnation incarnation;
    Clock clock;
    std::size_t mark = 0;  // issued() when the pull was issued
    // Every live worker had already ticked to the clock, so no push may be missing under any bound. (A worker that dies
    // holds the minimum clock back until all shards know its end.)
    bool settled = false;
    bool late = false;  // the worker was late, so a value may be that of a later clock (rule C8)
  };

  // Scenario and cohorts outlive this object.
  PushCounts(const Scenario& scenario, const Cohorts* cohorts);
  // The run continues from a checkpoint with these values.
  void ResumeFrom(std::map<Key, float> values);

  // A worker incarnation issued the push of a batch. Returns its number. `sent`: the part of the push that is sent
  // (top-k); null: all of it.
  std::size_t OnIssued(Incarnation incarnation, Clock clock, const DataRows& rows,
                       const std::map<Key, float>* sent = nullptr);
  void OnAcked(std::size_t number) { records_[number].acked = true; }
  std::size_t issued() const { return records_.size(); }
  // All keys that were pushed, here or before the checkpoint.
  std::vector<Key> Keys() const;

  // A shard has restored these partitions; `minimum`: its minimum clock. It replays its log next.
  void OnRestored(Clock minimum, std::span<const PartitionId> owned);
  // A shard has closed a clock of a table with backup workers (closings.h).
  std::string OnTableClosed(TableId table, Clock clock, std::uint32_t divisor,
                            std::span<const server::Contribution> counted, std::uint32_t backups);

  // Checks the value that a pull returned. `tolerance`: the rounding error of its codec.
  std::string CheckPulled(const Pulled& pull, Key key, float value, double tolerance) const;
  // Check the value after the run, at the minimum clock `minimum`; in a checkpoint at a clock; in one that was copied
  // while workers trained, which has at least the pushes of rows that it calls `trained`; in the checkpoint of a clean
  // stop without aggregated tables.
  std::string CheckFinal(Key key, float value, Clock minimum) const;
  std::string CheckCut(Clock cut, Key key, float value) const;
  std::string CheckCopied(Key key, float value, const std::function<bool(const DataRows&)>& trained) const;
  std::string CheckStopped(Key key, float value) const;

  // How often each row of data was trained in an epoch: by pushes of clocks below `before` that count; by those in the
  // checkpoint of a clean stop.
  std::vector<std::uint32_t> TimesTrained(std::uint32_t epoch, std::optional<Clock> before = {}) const;
  std::vector<std::uint32_t> TimesKept(std::uint32_t epoch) const;

 private:
  struct Record {
    Incarnation incarnation;
    Clock clock;
    DataRows rows;
    bool acked = false;
  };
  struct Addend {
    std::size_t record;
    float count;
  };
  // The least and the greatest value that a key may have.
  struct Range {
    double least, most;
    // Adds a part that the value must contain, or may contain.
    void Add(double part, bool must, bool may) {
      if (must) least += part;
      if (must || may) most += part;
    }
    void Set(double exact) { least = most = exact; }
    bool Has(double value, double tolerance) const { return value >= least - tolerance && value <= most + tolerance; }
  };

  double Base(Key key) const;
  bool Counts(const Record& record) const { return cohorts_->Has(record.incarnation, record.clock); }
  bool IsKept(const Record& record) const;  // in the checkpoint of a clean stop
  // How much a push to an aggregated table adds to a key.
  double Part(Key key, const Addend& addend) const;
  std::vector<ClockPart> PartsOf(Key key) const;
  // Starts with the value in the checkpoint, calls `add` for each push to the key, and widens the result.
  Range RangeOf(Key key, const std::function<void(const Record&, const Addend&, Range*)>& add) const;
  std::vector<std::uint32_t> Times(std::uint32_t epoch, const std::function<bool(const Record&)>& included) const;

  const Scenario& scenario_;
  const Cohorts* cohorts_;
  std::vector<Record> records_;
  std::unordered_map<Key, std::vector<Addend>> by_key_;
  std::map<Key, float> base_;
  std::map<TableId, Closings> closings_;
  std::optional<LifeModel> lives_;  // none if the model does not apply
};

}  // namespace tarn::sim

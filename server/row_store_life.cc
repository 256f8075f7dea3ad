// How rows of tables with a life come and go (rules R1 to R5).
#include <algorithm>
#include <limits>
#include <utility>

#include "core/hash.h"
#include "server/row_store_impl.h"

namespace tarn::server {

namespace {

constexpr std::uint64_t kAdmission = 0x61646d6974;
// One in so many rows of a partition may have expired before a sweep is worth its while.
constexpr std::uint64_t kRowsPerExpired = 64;
// What a partition costs a slice, in rows.
constexpr std::size_t kPartitionCost = 16;

std::uint32_t Clamped(std::uint64_t time) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(time, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

// The rules of a table that is new or has other numbers now. What expired by the old ones is gone first.
void RowStore::SetLife(Table& table) {
  for (std::uint32_t place = 0; place < table.sparse.size(); ++place)
    if (table.sparse[place]) TakeExpired(table, place);
  for (PartitionCut& cut : table.cut) cut.verdicts.Clear();  // what they are about has been handed out
  table.rules.emplace(table.spec.life);
  for (const auto& partition : table.sparse) {
    if (!partition) continue;
    partition->standings.Clear();
    partition->index.ForEach(
        [&](Key, std::uint32_t number) { CountLife(table, *partition, *partition->Life(number)); });
  }
}

void RowStore::TakeExpired(Table& table, std::uint32_t place) {
  const SparsePartition& partition = *table.sparse[place];
  found_.clear();
  partition.index.ForEach([&](Key key, std::uint32_t number) {
    if (Expired(table, partition, number)) found_.emplace_back(key, number);
  });
  for (const auto& [key, number] : found_) Take(table, place, number, key);
}

void RowStore::AdvanceClock(Clock clock) {
  clock_ = std::max(clock_.value_or(clock), clock);
  for (const auto& table : tables_)
    if (table && table->rules && !table->rules->in_seconds()) Advance(*table, Clamped(clock.value));
}

void RowStore::AdvanceSeconds(std::uint64_t seconds) {
  seconds_ = std::max(seconds_.value_or(seconds), seconds);
  for (const auto& table : tables_)
    if (table && table->rules && table->rules->in_seconds()) Advance(*table, Clamped(seconds));
}

// A new table knows the time that the others were told: its first rows are born in it.
void RowStore::BeginTime(Table& table) {
  if (table.rules->in_seconds()) {
    if (seconds_) Advance(table, Clamped(*seconds_));
  } else if (clock_) {
    Advance(table, Clamped(clock_->value));
  }
}

bool RowStore::counts_seconds() const {
  return std::ranges::any_of(tables_,
                             [](const auto& table) { return table && table->rules && table->rules->in_seconds(); });
}

void RowStore::Advance(Table& table, std::uint32_t now) {
  table.now = std::max(table.now, now);
  const std::uint32_t boundary = table.rules->BoundaryBefore(table.now);
  const bool passed = std::exchange(table.started, true) && boundary > table.boundary;
  table.boundary = boundary;
  if (!passed || !table.rules->expires()) return;
  for (const auto& partition : table.sparse)
    if (partition) Decide(table, *partition);
}

void RowStore::Decide(Table& table, SparsePartition& partition) {
  const LifeRules& rules = *table.rules;
  const std::uint64_t before = partition.standings.rows();
  const std::uint32_t least = partition.standings.Decide(rules.LeastStanding(table.boundary),
                                                         rules.RowsMax(options_.partition_bits), rules.step());
  partition.verdicts.Add({table.boundary, least});
  partition.expired += before - partition.standings.rows();
  counters_.expired += before - partition.standings.rows();
  partition.decided_in_sweep = true;
  if (partition.sweep_due || partition.expired * kRowsPerExpired < partition.index.size() || partition.expired == 0)
    return;
  partition.sweep_due = true;
  ++sweeps_due_;
}

bool RowStore::Expired(const Table& table, const SparsePartition& partition, std::uint32_t number) const {
  return !partition.verdicts.empty() && partition.verdicts.Expired(*table.rules, *partition.Life(number));
}

// Rules R1 and R2: whether a key without a row gets one at this push.
bool RowStore::Admit(Table& table, std::uint32_t place, Key key, Clock clock) {
  const LifeSpec& life = table.spec.life;
  SparsePartition& partition = *table.sparse[place];
  const std::uint32_t before = life.admit_count > 1 && partition.candidates ? partition.candidates->Count(key) : 0;
  const bool counted = before + 1 >= life.admit_count;
  const bool drawn =
      life.admit_probability >= 1 ||
      UnitDouble(HashCombine(HashCombine(table.salt ^ kAdmission, key), clock.value)) < double{life.admit_probability};
  if (counted && drawn) {
    if (before != 0) KeepSeen(table, place), partition.candidates->Erase(key);
    ++counters_.admitted;
    return true;
  }
  ++counters_.refused;
  if (!counted) {
    CandidatesOf(table, partition);
    KeepSeen(table, place);
    partition.candidates->Set(key, before + 1);
  }
  return false;
}

// Takes away a row that has expired: out of memory, into the next cut as a key removed.
void RowStore::Take(Table& table, std::uint32_t place, std::uint32_t number, Key key) {
  SparsePartition& partition = *table.sparse[place];
  KeepFirst(table, place, number, key, table.SparseRow(partition, number));
  partition.index.Erase(partition.index.Hash(key), key);
  if (partition.resident != nullptr) partition.resident->Remove(place, number);
  partition.free.push_back(number);
  NoteRemoved(partition, key);
  if (partition.expired != 0 && --partition.expired == 0) partition.verdicts.Clear();
}

void RowStore::Touch(const Table& table, SparsePartition& partition, std::uint32_t number) {
  RowLife& life = *partition.Life(number);
  UncountLife(table, partition, life);
  life = table.rules->Touched(life, table.now);
  CountLife(table, partition, life);
}

void RowStore::CountLife(const Table& table, SparsePartition& partition, const RowLife& life) {
  if (table.rules->expires()) partition.standings.Add(table.rules->Standing(life), table.rules->step());
}

void RowStore::UncountLife(const Table& table, SparsePartition& partition, const RowLife& life) {
  if (table.rules->expires()) partition.standings.Drop(table.rules->Standing(life), table.rules->step());
}

void RowStore::ContinueSweep(std::size_t rows) {
  for (std::size_t spent = 0; spent < rows && NextSweep();)
    spent += kPartitionCost + Sweep(*tables_[sweep_table_], sweep_place_, rows - spent);
}

// Goes to the partition with a sweep, if it is not there. False: there is none now.
bool RowStore::NextSweep() {
  if (!sweeping()) return false;
  for (;;) {
    if (sweep_table_ >= tables_.size()) sweep_table_ = sweep_place_ = 0;
    const Table* table = tables_[sweep_table_].get();
    if (table == nullptr || sweep_place_ >= table->sparse.size()) {
      ++sweep_table_;
      sweep_place_ = 0;
      continue;
    }
    if (table->sparse[sweep_place_] && table->sparse[sweep_place_]->sweep_due) return true;
    ++sweep_place_;
    sweep_walk_ = {};
  }
}

// Takes away what has expired of some rows of a partition; returns how many it looked at.
std::size_t RowStore::Sweep(Table& table, std::uint32_t place, std::size_t rows) {
  SparsePartition& partition = *table.sparse[place];
  if (sweep_walk_.next_hash == 0) partition.decided_in_sweep = false;
  found_.clear();
  std::size_t seen = 0;
  partition.index.Continue(&sweep_walk_, rows, [&](Key key, std::uint32_t number) {
    ++seen;
    if (Expired(table, partition, number)) found_.emplace_back(key, number);
  });
  for (const auto& [key, number] : found_) Take(table, place, number, key);
  if (!sweep_walk_.done) return seen;
  sweep_walk_ = {};
  ++sweep_place_;
  if (partition.decided_in_sweep && partition.expired != 0) return seen;  // once more, later
  partition.expired = 0;
  partition.verdicts.Clear();
  partition.sweep_due = false;
  --sweeps_due_;
  return seen;
}

}  // namespace tarn::server

// All rows of one shard: maps tables and partitions to fragments and passes the keys of a message on to them. The RAM
// tier of the storage. Rows are reached through Gather and Apply, each called once a message, through partitions, and
// through cuts.
//
//   Store rows({.job_seed = 1, .partition_bits = 6, .owned = mine});
//   rows.AddTable(spec);
//   if (auto status = rows.CheckKeys(spec.id, sections, keys); !status) ...;
//   rows.Apply(spec.id, sections, keys, ValueCodec::kFp32, gradients, clock);
//   rows.Gather(spec.id, sections, keys, ValueCodec::kBf16, out);
//
// A sparse row exists from its first Apply on, unless the table's life says otherwise (LifeSpec); the rows of a dense
// partition exist, all of them, from its first Apply on. Gather changes nothing: a row that does not exist answers its
// initial value (rule C6). A row is its values and then, for sparse tables, its slots; dense tables keep values and
// slots apart. What leaves the store is a row's record (core/row_layout.h). Apply and Load throw OutOfMemory
// (server/exhaustion.h), naming the table, when there is no memory for more rows; the rows are then undefined. Not
// thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/limits.h"
#include "core/message.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "server/store/partition.h"
#include "server/store/row_finder.h"
#include "server/store/row_stepper.h"
#include "server/store/snapshot.h"
#include "server/store/store_context.h"
#include "server/store/sweeper.h"
#include "server/store/table.h"
#include "server/store/tier_reader.h"
#include "server/tier/residency.h"

namespace tarn::server {

struct StoreOptions {
  std::uint64_t job_seed = 0;
  std::uint32_t partition_bits = 0;
  std::vector<PartitionId> owned;  // each once
  // Keys of a table, over all partitions, that are remembered as removed since the base of the next cut; beyond, it
  // must hold all rows (KnowsChanges).
  std::uint64_t removed_keys_max = limits::kRemovedKeysMax;
};

// Of one table: gradients that were skipped since they hold an infinity or a NaN.
struct NotFiniteRows {
  std::string table;
  std::uint64_t rows = 0;
  Key key = 0;  // of the last one
};

class Store {
 public:
  // With a tier, the rows of sparse tables stay within its budget and the others lie on its disk. Everything works as
  // without, to the bit; what needs a cold row waits for the disk.
  explicit Store(StoreOptions options, std::unique_ptr<Residency> tier = nullptr);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Creates a table, or gives an existing one new settings. Another shape under its id or name, and a bad spec, are
  // errors.
  Status AddTable(const TableSpec& spec);
  // Null if there is none; valid as long as the store.
  const TableSpec* FindTable(TableId id) const;
  const TableSpec* FindTable(std::string_view name) const;

  bool Owns(PartitionId partition) const { return Find(partition) != nullptr; }
  // Null if the store does not own it; valid until DropPartition.
  Partition* Find(PartitionId partition) const {
    return partition.value < partitions_.size() ? partitions_[partition.value].get() : nullptr;
  }
  // Creates an empty partition, which the store must not own yet. Not within a cut.
  Partition& AddPartition(PartitionId partition);
  // Drops a partition with all rows; their memory serves later rows. Not within a cut.
  void DropPartition(PartitionId partition);
  std::uint32_t partition_bits() const { return context_.partition_bits; }
  std::vector<PartitionId> owned() const;

  // Whether each section's partition is owned and its keys lie in it; the sections' counts must add up to keys.size()
  // (a programmer's error otherwise, here and below). kWrongShard, or kInvalidArgument for a dense key beyond the
  // table.
  Status CheckKeys(TableId table, std::span<const Section> sections, std::span<const Key> keys) const;

  // Writes the rows' values to `out`, keys.size() rows in the codec, in the order of keys. The keys must have passed
  // CheckKeys.
  void Gather(TableId table, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
              std::byte* out) const;

  // The values of one row of a partition that is owned; as Gather. For tools and checks.
  std::vector<float> Values(TableId table, Key key) const;

  // One optimizer step for each key that has or gets a row, in order; a row whose gradient has a value that is infinite
  // or NaN keeps its values, and is not inserted if it does not exist (rule A5). A key that is named twice takes two
  // steps. Gradients are keys.size() rows in the codec, the schedule is that at `clock`. `push` distinguishes it from
  // other pushes of that clock: what is kept in 16 bits is rounded by key, clock and it. The keys must have passed
  // CheckKeys.
  void Apply(TableId table, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
             const std::byte* gradients, Clock clock, std::uint64_t push = 0);

  // Rule A5: counts a gradient that is not finite and was left out before Apply, which counts by itself.
  void SkipNotFinite(TableId table, Key key);
  // The tables that have skipped some.
  std::vector<NotFiniteRows> not_finite() const;

  // Fills the store from a checkpoint, not within a cut. Keys of partitions that are not owned are left out; none
  // counts as changed. Load sets rows from keys.size() records, a later one of a key over an earlier one; Remove takes
  // rows away, which need not exist; LoadSeen sets how often keys without a row were pushed, of the newest increment
  // alone.
  Status Load(TableId table, std::span<const Key> keys, std::span<const std::uint32_t> rows);
  Status Remove(TableId table, std::span<const Key> keys);
  Status LoadSeen(TableId table, std::span<const Seen> seen);

  // A cut is one of each partition: the rows as they are now, whatever is applied while they are read, or of them those
  // that changed since the base, with the keys removed since. BeginCut copies none; it returns the tables, without
  // rows. ContinueCut copies about `bytes` more and hands out what is complete: chunks of rows in order of table and
  // partition, those of one partition in no particular order. True: that was all, and the cut is over. A row that is
  // about to change is copied before, within Apply. One cut at a time; DropCut gives it up.
  std::vector<TableRows> BeginCut(CutRequest request = {});
  // Whether a cut of kChanged begun now would name every key removed since its base, as the request would define it:
  // not if more were than are remembered. Of such a cut only the hash may be used.
  bool KnowsChanges(bool base_is_previous_cut) const;
  bool ContinueCut(std::size_t bytes, std::vector<CutRows>* out);
  void DropCut();
  bool cutting() const { return context_.cut.active; }
  // Whether the cut waits for cold rows. Those come in Tend.
  bool cut_waits() const { return context_.cut.waits && !tier_->HasForCut(); }
  // What StateHash was at the beginning of the last cut that was handed out whole, if it had hash_all.
  std::uint64_t cut_state_hash() const { return cut_state_hash_; }
  // Bytes of rows that all cuts so far have copied because they were about to change. They wait until the walk comes
  // to their partition: in memory, of which only the size of the store bounds them, or, with a tier, mostly on its
  // disk.
  std::uint64_t cut_early_bytes() const { return context_.cut.early_bytes; }
  // Memory that those take which wait there now.
  std::size_t cut_held_bytes() const { return context_.cut.early_held_bytes; }

  // The time of tables with a life (rules R1 to R5): pushes count at it, and what lies between two calls for a table is
  // one time. The first call only sets the time; later ones that pass a boundary let rows expire. Seconds are those
  // since 1970; tables that do not count in them ignore them. Earlier times than before change nothing.
  void AdvanceClock(Clock clock);
  void AdvanceSeconds(std::uint64_t seconds);
  bool counts_seconds() const;
  // The latest times set.
  const std::optional<Clock>& clock() const { return clock_; }
  const std::optional<std::uint64_t>& seconds() const { return seconds_; }
  // A row that has expired is as if it had never been, everywhere in this interface. ContinueSweep, which looks at
  // about `rows` rows, frees the memory of many; there is something to do as long as sweeping(). With a tier that waits
  // for the end of a cut, which would have to read what it still wants of them row by row.
  bool sweeping() const { return context_.sweeps_due != 0 && !(cutting() && tier_); }
  void ContinueSweep(std::size_t rows);
  const RowCounters& counters() const { return context_.counters; }
  void ForgetCounters();

  // Sum of RowHash (server/store/snapshot.h) over all rows there are, and of SeenHash over the keys seen without: the
  // same however rows are spread over shards.
  std::uint64_t StateHash() const;

  // Begins to read the rows of a message that are on disk (Gather's and Apply's conditions), beside the shard's work.
  // The fetch has ended when they are in memory; 0: they all are.
  FetchTicket FetchCold(TableId table, std::span<const Section> sections, std::span<const Key> keys);
  // Whether any row of the table is on disk.
  bool HasCold(TableId table) const;
  // Takes in what the disk has done, and keeps to the budget, of which `other_bytes` are spent on what the store does
  // not know. Nothing without a tier. Throws StorageFailed (server/exhaustion.h), as all that touches cold rows.
  void Tend(std::size_t other_bytes);
  // Null: all rows are in memory.
  Residency* tier() const { return tier_.get(); }

  std::uint64_t row_count() const;
  // What rows, indices and the cut under way take from the system, in memory.
  std::uint64_t memory_bytes() const;

 private:
  using Partitions = std::vector<std::unique_ptr<Partition>>;

  Table& At(TableId id) const;
  template <typename Visit>
  void ForEachSparse(const Table& table, Visit visit) const;
  void SetTime(Table& table);
  void Advance(Table& table, std::uint64_t now);
  Status UpdateTable(Table& table, const TableSpec& spec);
  Status CheckSection(const Table& table, PartitionId partition, std::span<const Key> keys) const;
  template <typename Take>
  void ForEachRun(const Table& table, std::span<const Key> keys, Take take) const;
  std::string NameOf(TableId id, RowOwner owner) const;
  Fragment* NextInCut();
  [[noreturn]] void ThrowExhausted(const Table& table, const std::bad_alloc& reason) const;

  std::uint64_t job_seed_;
  mutable StoreContext context_;  // outlives the fragments
  std::unique_ptr<Residency> tier_;
  std::vector<std::unique_ptr<Table>> tables_;  // by id
  Partitions partitions_;                       // by id; null: not owned
  std::uint32_t places_ = 0;                    // numbers of partitions in the tier, given out so far
  std::vector<std::uint32_t> free_places_;      // of dropped partitions
  mutable RowStepper stepper_;
  mutable TierReader reader_;
  Sweeper sweeper_;
  std::size_t cut_table_ = 0, cut_partition_ = 0;  // where the cut's walk is
  std::uint64_t cut_state_hash_ = 0;
  std::optional<Clock> clock_;
  std::optional<std::uint64_t> seconds_;
};

}  // namespace tarn::server

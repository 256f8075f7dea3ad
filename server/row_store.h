// All rows of one shard: per table and partition. The RAM tier of the storage; the only ways to rows are Gather, Apply
// and Load, each called once a message, and cuts.
//
//   RowStore rows({.job_seed = 1, .partition_bits = 6, .owned = mine});
//   rows.AddTable(spec);
//   if (auto status = rows.CheckKeys(spec.id, sections, keys); !status) ...;
//   rows.Apply(spec.id, sections, keys, ValueCodec::kFp32, gradients, clock);
//   rows.Gather(spec.id, sections, keys, ValueCodec::kBf16, out);
//
// Sparse rows are born at their first Apply, unless the table's life says otherwise (LifeSpec); dense partitions,
// whole, at theirs. Gather changes nothing: what is not born answers its initial value (rule C6). A row is its values
// and then, for sparse tables, its slots; dense tables keep values and slots apart. What leaves the store is its record
// (core/row_layout.h). Apply and Load throw OutOfMemory (server/exhaustion.h), naming the table, when there is no
// memory for more rows; the rows are then undefined. Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/limits.h"
#include "core/message.h"
#include "core/table_spec.h"
#include "core/types.h"
#include "server/arena.h"
#include "server/row_index.h"
#include "server/snapshot.h"
#include "server/tier/residency.h"

namespace tarn::server {

struct RowStoreOptions {
  std::uint64_t job_seed = 0;
  std::uint32_t partition_bits = 0;
  std::vector<PartitionId> owned;  // each once
  // Keys of a table, over all partitions, that are remembered as removed since the base of the next cut; beyond, it
  // must hold all rows (KnowsChanges).
  std::uint64_t removed_keys_max = limits::kRemovedKeysMax;
};

struct RowCounters {
  std::uint64_t admitted = 0;    // rows born in tables with a life
  std::uint64_t refused = 0;     // gradients of keys that got no row
  std::uint64_t expired = 0;     // rows
  std::uint64_t not_finite = 0;  // gradients that were skipped (rule A5)
};

// Of one table: gradients that were skipped since they hold an infinity or a NaN.
struct NotFiniteRows {
  std::string table;
  std::uint64_t rows = 0;
  Key key = 0;  // of the last one
};

struct CutRequest {
  CutScope scope = CutScope::kAll;
  // Whether the cut before this one, handed out whole, has become the base: what kChanged is relative to. If not, the
  // base stays what it was: the last cut of which this was said, else what was loaded, else nothing (all rows are then
  // changed). Only who asks knows which of its cuts became durable.
  bool base_is_previous_cut = false;
  // Sum up the hash of all rows at the cut (RowStore::cut_state_hash), also of those that are not handed out.
  bool hash_all = false;
};

class Candidates;
struct RowLife;

class RowStore {
 public:
  // With a tier, whose places are the partitions that are owned, the rows of sparse tables stay within its budget and
  // the others lie on its disk. Everything works as without, to the bit; what meets a cold row waits for the disk.
  explicit RowStore(RowStoreOptions options, std::unique_ptr<Residency> tier = nullptr);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  // Makes a table, or gives one that is there new settings. Another shape under its id or name, and a bad spec, are
  // errors.
  Status AddTable(const TableSpec& spec);
  // Null if there is none; valid as long as the store.
  const TableSpec* FindTable(TableId id) const;
  const TableSpec* FindTable(std::string_view name) const;

  bool Owns(PartitionId partition) const {
    return partition.value < place_.size() && place_[partition.value] != kNotOwned;
  }
  std::uint32_t partition_bits() const { return options_.partition_bits; }
  const std::vector<PartitionId>& owned() const { return options_.owned; }

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
  // or NaN is left as it is, and gets no row if it has none (rule A5). A key that is named twice takes two steps.
  // Gradients are keys.size() rows in the codec, the schedule is that at `clock`. `push` tells it from other pushes of
  // that clock: by key, clock and it is rounded what is kept in 16 bits. The keys must have passed CheckKeys.
  void Apply(TableId table, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
             const std::byte* gradients, Clock clock, std::uint64_t push = 0);

  // Rule A5: counts a gradient that is not finite, and is left out. Apply does so by itself.
  void SkipNotFinite(TableId table, Key key);
  // The tables that have skipped some.
  std::vector<NotFiniteRows> not_finite() const;

  // Filling the store from a checkpoint, not within a cut. Keys of partitions that are not owned are left out; none
  // counts as changed. Load sets rows from keys.size() records, a later one of a key over an earlier one; Remove takes
  // rows away, which need not be there; LoadSeen sets how often keys without a row were pushed, of the newest
  // checkpoint of a chain alone.
  Status Load(TableId table, std::span<const Key> keys, std::span<const std::uint32_t> rows);
  Status Remove(TableId table, std::span<const Key> keys);
  Status LoadSeen(TableId table, std::span<const Seen> seen);

  // A cut: the rows as they are now, whatever is applied while they are read, or of them those that changed since the
  // base, with the keys removed since. BeginCut copies none; it returns the tables, without rows. ContinueCut copies
  // about `bytes` more and hands out what is complete: chunks of rows in order of table and partition, those of one
  // partition in no particular order. True: that was all, and the cut is over. A row that is about to change is copied
  // before, within Apply. One cut at a time; DropCut gives it up.
  std::vector<TableRows> BeginCut(CutRequest request = {});
  // Whether a cut of kChanged begun now would name every key removed since its base, as the request would tell it: not
  // if more were than are remembered. Of such a cut only the hash may be used.
  bool KnowsChanges(bool base_is_previous_cut) const;
  bool ContinueCut(std::size_t bytes, std::vector<CutRows>* out);
  void DropCut();
  bool cutting() const { return cutting_; }
  // Whether the cut waits for cold rows. Those come in Tend.
  bool cut_waits() const { return cut_waits_ && !tier_->HasForCut(); }
  // What StateHash was at the beginning of the last cut that was handed out whole, if it had hash_all.
  std::uint64_t cut_state_hash() const { return cut_state_hash_; }
  // Bytes of rows that all cuts so far have copied because they were about to change. They wait until the walk comes
  // to their partition: in memory, of which only the size of the store bounds them, or, with a tier, mostly on its
  // disk.
  std::uint64_t cut_early_bytes() const { return cut_early_bytes_; }
  // Memory that those take which wait there now.
  std::size_t cut_held_bytes() const { return early_held_bytes_; }

  // The time of tables with a life (rules R1 to R5): pushes count at it, and what lies between two calls for a table is
  // one time. The first call only says where the store stands; later ones that pass a boundary let rows expire. Seconds
  // are those since 1970; tables that do not count in them do without. Earlier times than before change nothing.
  void AdvanceClock(Clock clock);
  void AdvanceSeconds(std::uint64_t seconds);
  bool counts_seconds() const;
  // The latest times told.
  const std::optional<Clock>& clock() const { return clock_; }
  const std::optional<std::uint64_t>& seconds() const { return seconds_; }
  // A row that has expired is as if it had never been, everywhere in this interface. The memory of many is given back
  // by ContinueSweep, which looks at about `rows` rows; there is something to do as long as sweeping(). With a tier
  // that waits for the end of a cut, which would have to read what it still wants of them row by row.
  bool sweeping() const { return sweeps_due_ != 0 && !(cutting_ && tier_); }
  void ContinueSweep(std::size_t rows);
  const RowCounters& counters() const { return counters_; }
  void ForgetCounters();

  // Sum of RowHash (server/snapshot.h) over all rows there are, and of SeenHash over the keys seen without: the
  // same however rows are spread over shards.
  std::uint64_t StateHash() const;

  // Begins to read the rows of a message that are on disk (Gather's and Apply's conditions), beside the shard's work.
  // What is returned has ended when they are in memory; 0: they all are.
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
  static constexpr std::uint32_t kNotOwned = 0xffffffff;
  static constexpr std::size_t kGroupKeys = 32;  // as many as a word has bits
  struct SparsePartition;
  struct DensePartition;
  struct PartitionCut;
  struct Table;
  class Cursor;
  enum class Ahead;
  struct Group;
  struct ColdWalk;
  struct AsideRows;
  struct RowParts {
    float* values;
    float* slots;
    RowLife* life;  // null: the table has none
  };

  const Table& At(TableId id) const;
  SparsePartition& Sparse(Table& table, std::uint32_t place);
  DensePartition& BornDense(Table& table, std::uint32_t place);
  // row_store_tier.cc
  std::size_t BringIn(const Table& table, Cursor cursor) const;
  void CountOthers() const;
  std::size_t FindCold(const Table& table, Cursor cursor, std::size_t rows, bool spare,
                       std::vector<RowOwner>* owners) const;
  RowParts PartsOf(const Table& table, const SparsePartition& partition, std::uint32_t number,
                   std::uint32_t* words) const;
  std::string NameOf(TableId id, RowOwner owner) const;
  RowParts ColdRow(const Table& table, std::uint32_t place, std::uint32_t number) const;
  template <typename Visit>
  void ForEachCold(const Table& table, std::uint32_t place, Visit visit) const;
  std::size_t WalkCold(Table& table, PartitionCut& cut, std::vector<CutRows>* out);
  void TakeCold(Table& table, PartitionCut& cut, std::vector<CutRows>* out);
  void FetchNext(Table& table, PartitionCut& cut, std::vector<CutRows>* out);
  void PutEarlyAside();
  void PutAside(const Table& table, PartitionCut& cut);
  std::size_t HandOutAside(const Table& table, PartitionCut& cut, std::vector<CutRows>* out);
  void TakeAside(const Table& table, PartitionCut& cut, std::vector<CutRows>* out);
  void FetchAside(const Table& table, PartitionCut& cut);
  // row_store_rows.cc
  template <typename Work>
  void InGroups(const Table& table, Ahead ahead, std::size_t rows, Cursor* cursor, Work work) const;
  void TakeKeys(const Table& table, Cursor* cursor, Group* group) const;
  void FindBuckets(const Table& table, Group* group) const;
  static float* BringNear(const Table& table, Ahead ahead, const SparsePartition& partition, std::uint32_t number);
  void FindNear(const Table& table, Ahead ahead, Group* group) const;
  void FindNearInMemory(const Table& table, Ahead ahead, const SparsePartition& partition, std::size_t i,
                        std::size_t end, Group* group) const;
  void FindNearInTier(const Table& table, const SparsePartition& partition, std::size_t i, std::size_t end,
                      Group* group) const;
  void FindFurther(const Table& table, Ahead ahead, Group* group) const;
  void ValuesOf(const Table& table, const Group& group, const float** rows) const;
  void GatherHalves(const Table& table, ValueCodec codec, std::size_t n, const float* const* rows,
                    std::byte* out) const;
  void StepGroup(Table& table, Clock clock, const Group& group, const float* gradients, std::uint32_t left_out);
  std::uint32_t NotFinite(Table& table, const Group& group, const float* gradients);
  void Step(const Table& table, Clock clock, std::size_t n, const Key* keys, float** values, float** slots,
            const float* gradients);
  void StepHalves(const Table& table, Clock clock, std::size_t n, const Key* keys, float** values, float** slots,
                  const float* gradients);
  void SetLife(Table& table);
  void BeginTime(Table& table);
  void Advance(Table& table, std::uint32_t now);
  void Decide(Table& table, SparsePartition& partition);
  bool Expired(const Table& table, const SparsePartition& partition, std::uint32_t number) const;
  bool Admit(Table& table, std::uint32_t place, Key key, Clock clock);
  void Take(Table& table, std::uint32_t place, std::uint32_t number, Key key);
  void Touch(const Table& table, SparsePartition& partition, std::uint32_t number);
  void CountLife(const Table& table, SparsePartition& partition, const RowLife& life);
  void UncountLife(const Table& table, SparsePartition& partition, const RowLife& life);
  void TakeExpired(Table& table, std::uint32_t place);
  bool NextSweep();
  std::size_t Sweep(Table& table, std::uint32_t place, std::size_t rows);
  DensePartition& DenseForApply(Table& table, std::uint32_t place);
  std::uint32_t BearRow(Table& table, std::uint32_t place, std::uint64_t hash, Key key, Clock clock);
  RowParts RowForApply(Table& table, const Group& group, std::size_t i, Clock clock);
  RowParts DenseRowForApply(Table& table, std::uint32_t place, Key key);
  std::uint32_t BirthOf(const Table& table, SparsePartition& partition, std::uint64_t hash, Key key);
  void Forget(const Table& table, SparsePartition& partition, Key key);
  RowParts RowForLoad(Table& table, std::uint32_t place, Key key);
  Candidates& CandidatesOf(const Table& table, SparsePartition& partition) const;
  std::uint32_t PlaceOf(const Table& table, Key key) const;
  std::uint64_t HashOf(const Table& table, Key key, const RowParts& row) const;
  static void AppendRecord(const Table& table, const RowParts& row, std::vector<std::uint32_t>* out);
  [[noreturn]] void ThrowExhausted(const Table& table, const std::bad_alloc& reason) const;
  void KeepFirst(Table& table, std::uint32_t place, std::uint64_t number, Key key, const RowParts& row);
  void LeaveOut(Table& table, std::uint32_t place, std::uint64_t number);
  void KeepSeen(Table& table, std::uint32_t place);
  void MoveChangesAside(Table& table, const CutRequest& request);
  std::size_t RemovedKeysMax() const;
  void NoteRemoved(SparsePartition& partition, Key key);
  void NoteBack(Table& table, std::uint32_t place, Key key);
  void ForgetRemoved();
  bool IsWanted(const Table& table, std::size_t place, std::uint64_t number) const;
  bool Keep(const Table& table, PartitionCut& cut, std::uint64_t number, Key key, const RowParts& row,
            std::vector<CutRows>* out);
  void CopyRow(const Table& table, PartitionCut& cut, Key key, const RowParts& row, std::vector<CutRows>* out);
  std::size_t EarlyChunkBytes() const;
  static std::size_t HeldBytes(const PartitionRows& chunk);
  std::uint64_t CutBytes() const;
  void CountEarly(std::size_t bytes);
  std::size_t ChunkRowsMax(const Table& table, const PartitionCut& cut, bool early) const;
  PartitionRows& ChunkOf(const Table& table, PartitionCut& cut, bool early);
  bool NeedsValues(const Table& table, std::size_t place, std::uint64_t number, const RowParts& row) const;
  bool KeepGone(const Table& table, PartitionCut& cut, std::uint64_t number, Key key, std::vector<CutRows>* out);
  std::size_t HandOutEarly(Table& table, PartitionCut& cut, std::size_t bytes, std::vector<CutRows>* out);
  std::size_t HandOutLists(Table& table, PartitionCut& cut, std::size_t bytes, std::vector<CutRows>* out);
  std::size_t WalkPartition(Table& table, std::size_t bytes, std::vector<CutRows>* out);
  std::size_t WalkDense(Table& table, PartitionCut& cut, std::size_t rows, std::vector<CutRows>* out);
  std::size_t WalkSparse(Table& table, PartitionCut& cut, std::size_t rows, std::vector<CutRows>* out);
  template <typename Visit>
  void ForEachRow(const Table& table, Visit visit) const;

  RowStoreOptions options_;
  std::vector<std::uint32_t> place_;            // by partition: its place among the owned, or kNotOwned
  PagePool pages_;                              // of the indices, which go first
  std::vector<std::unique_ptr<Table>> tables_;  // by id
  Arena arena_;
  std::unique_ptr<Residency> tier_;
  std::size_t other_bytes_ = 0;          // of the last Tend
  mutable std::size_t index_bytes_ = 0;  // indices, lives and marks, when they were last counted
  mutable std::uint32_t spans_ = 0;
  mutable std::vector<RowOwner> cold_;              // of one span or walk
  mutable std::vector<std::uint32_t> cold_record_;  // of one row
  // The cut, and how far its walk has come.
  bool cutting_ = false;
  bool cut_waits_ = false;
  CutRequest cut_request_;
  std::uint64_t cut_hash_ = 0, cut_state_hash_ = 0;
  bool loaded_ = false, cut_begun_ = false;  // either: there may be a base that has rows which are removed
  // Whether all keys removed since the last cut, and from its base until it, are remembered.
  bool changed_known_ = true, aside_known_ = true;
  std::size_t cut_table_ = 0;
  std::uint32_t cut_place_ = 0;
  std::uint64_t cut_early_bytes_ = 0;
  std::size_t early_held_bytes_ = 0;  // of rows copied early: in memory now
  std::optional<Clock> clock_;
  std::optional<std::uint64_t> seconds_;
  // Sweeps: partitions that have one, and where it is.
  std::size_t sweeps_due_ = 0;
  std::size_t sweep_table_ = 0;
  std::uint32_t sweep_place_ = 0;
  RowIndex::Walk sweep_walk_;
  RowCounters counters_;
  std::uint64_t comings_ = 0;                         // rows born so far, and keys refused
  std::vector<std::pair<Key, std::uint32_t>> found_;  // rows of one slice
  mutable std::vector<std::uint32_t> record_;         // of one row
  std::uint64_t rounding_ = 0;                        // of the Apply under way
  mutable std::vector<float> wide_;                   // values of one group of 16-bit rows
  mutable std::vector<float> absent_;                 // initial values of the absent rows of one group
  std::vector<float> decoded_;                        // gradients of one group
};

}  // namespace tarn::server

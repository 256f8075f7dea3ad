// All rows of one shard: maps tables and partitions to fragments and passes the keys of a message to them. Rows are
// accessed through Gather and Apply (one call per message), through partitions, and through cuts.
//
//   Store rows({.job_seed = 1, .partition_bits = 6, .owned = mine});
//   rows.AddTable(spec);
//   if (auto status = rows.CheckKeys(spec.id, sections, keys); !status) ...;
//   rows.Apply(spec.id, sections, keys, ValueCodec::kFp32, gradients, clock);
//   rows.Gather(spec.id, sections, keys, ValueCodec::kBf16, out);
//
// A sparse row exists from its first Apply on, unless the table has rules of admission or expiry (LifeSpec). All rows
// of a dense partition exist from its first Apply on. Gather changes nothing: for a row that does not exist it returns
// the initial value (rule C6). A row of a sparse table is its values, then its slots; dense tables store values and
// slots separately. Exported rows are records (core/row_layout.h).
//
// With a tier, functions also return errors of the disk (kIo, kCorrupt). They are final: the operation is incomplete
// and the rows are undefined. Apply and Load throw OutOfMemory (server/exhaustion.h), naming the table, when there is
// no memory for more rows; the rows are undefined then, too. Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/limits.h"
#include "core/message.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "server/store/expiry.h"
#include "server/store/partition.h"
#include "server/store/row_finder.h"
#include "server/store/row_stepper.h"
#include "server/store/snapshot.h"
#include "server/store/store_context.h"
#include "server/store/store_cut.h"
#include "server/store/store_maps.h"
#include "server/store/table.h"
#include "server/store/tier_reader.h"
#include "server/tier/residency.h"

namespace tarn::server {

struct StoreOptions {
  std::uint64_t job_seed = 0;
  std::uint32_t partition_bits = 0;
  std::vector<PartitionId> owned;  // each once
  // Maximum number of a table's keys, over all partitions, that are recorded as removed since the base of the next cut.
  // If one partition exceeds its share, that cut must contain all rows (StoreCut::KnowsChanges).
  std::uint64_t removed_keys_max = limits::kRemovedKeysMax;
};

// The gradients of one table that were skipped because they contain an infinity or a NaN (rule A5).
struct NotFiniteRows {
  std::string table;
  std::uint64_t rows = 0;  // number of gradients
  Key key = 0;             // of the last one
};

class Store {
 public:
  // With a tier, rows of sparse tables that exceed its budget are on its disk. The results have the same bits as
  // without a tier; operations on a cold row wait for the disk.
  explicit Store(StoreOptions options, std::unique_ptr<Residency> tier = nullptr);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Creates a table, or changes the settings of an existing one. kAlreadyExists: a table with this id has another name,
  // one with this name has another id, or its shape differs. An invalid spec is an error too.
  Status AddTable(const TableSpec& spec);
  // Null if there is none; valid as long as the store.
  const TableSpec* FindTable(TableId id) const;
  const TableSpec* FindTable(std::string_view name) const;

  bool Owns(PartitionId partition) const { return Find(partition) != nullptr; }
  // Null if the store does not own it; valid until DropPartition.
  Partition* Find(PartitionId partition) const {
    return partition.value < partitions_.size() ? partitions_[partition.value].get() : nullptr;
  }
  // Creates an empty partition, which the store must not own yet. Must not be called during a cut.
  Partition& AddPartition(PartitionId partition);
  // Drops a partition with all rows; their memory is reused for later rows. Must not be called during a cut.
  void DropPartition(PartitionId partition);
  std::uint32_t partition_bits() const { return context_.partition_bits; }
  std::vector<PartitionId> owned() const;

  // Whether each section's partition is owned and its keys lie in it; the sections' counts must add up to keys.size()
  // (a programmer's error otherwise, here and below). kWrongShard, or kInvalidArgument for a dense key beyond the
  // table.
  Status CheckKeys(TableId table, std::span<const Section> sections, std::span<const Key> keys) const;

  // Writes the rows' values to `out`, keys.size() rows in the codec, in the order of keys. The keys must have passed
  // CheckKeys.
  Status Gather(TableId table, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
                std::byte* out) const;

  // The values that Gather returns for one key, whose partition must be owned. For tools and checks.
  Expected<std::vector<float>> Values(TableId table, Key key) const;

  // Applies one optimizer step for each key that has or gets a row, in order; two for a key that occurs twice. A
  // gradient that contains an infinity or a NaN is skipped: its row keeps its values, and is not inserted if it does
  // not exist (rule A5). `rows` has keys.size() gradients and what the table's rule needs; the learning rate is that of
  // rows.clock. Each section with keys raises the version of the table in its partition by one; Section::version is
  // the version at which the section's rows were pulled. The keys must have passed CheckKeys.
  //
  // With kAssign, `rows` has values in place of gradients. They replace the values of the rows, whose slots remain. A
  // row that does not exist is created with initial slots, even if admission would refuse it. With kDelete, the rows of
  // the keys are removed if they exist; the table must be sparse.
  Status Apply(TableId table, std::span<const Section> sections, std::span<const Key> keys, const PushedRows& rows);
  Status Apply(TableId table, std::span<const Section> sections, std::span<const Key> keys, ValueCodec codec,
               const std::byte* gradients, Clock clock, std::uint64_t push = 0) {
    return Apply(table, sections, keys, {.codec = codec, .gradients = gradients, .clock = clock, .push = push});
  }

  // Counts a gradient that is not finite and was dropped before Apply (rule A5). Apply counts those that it drops.
  void SkipNotFinite(TableId table, Key key);
  // The tables with skipped gradients.
  std::vector<NotFiniteRows> not_finite() const;

  // Load the contents of a checkpoint. Must not be called during a cut. Keys of partitions that are not owned are
  // skipped; no key counts as changed. Load sets rows from keys.size() records; of several for a key, the last one
  // counts. Remove removes rows, which need not exist. LoadSeen sets how often keys without a row were pushed, from the
  // newest increment only. kCorrupt: keys do not fit the table, or a record is invalid.
  Status Load(TableId table, std::span<const Key> keys, std::span<const std::uint32_t> rows);
  Status Remove(TableId table, std::span<const Key> keys);
  Status LoadSeen(TableId table, std::span<const Seen> seen);
  // Sets the version and the rule's state of the table in a partition; does nothing if the partition is not owned.
  // kCorrupt: the table's rule has a state of another size.
  Status LoadState(TableId table, PartitionId partition, const FragmentState& state);

  StoreCut& cut() { return cut_; }
  const StoreCut& cut() const { return cut_; }
  Expiry& expiry() { return expiry_; }
  const Expiry& expiry() const { return expiry_; }

  const RowCounters& counters() const { return context_.counters; }
  // The caller adds to `discarded` the gradients that came too late and that it dropped before Apply. Apply counts
  // those that the update rule discards.
  RowCounters& counters() { return context_.counters; }
  // The gradient delays of all applied sections whose version at their pull is known.
  const GradientDelays& delays() const { return context_.delays; }
  // Resets counters, delays and not_finite.
  void ForgetCounters();

  // Sum of RowHash (server/store/snapshot.h) over all rows, of SeenHash over the keys that wait for admission, and of
  // FragmentHash over all fragments. Does not depend on the distribution of rows over shards.
  Expected<std::uint64_t> StateHash() const;

  // Starts to read, in the background, those rows of a message that are on disk. The keys must have passed CheckKeys.
  // The fetch ends when the rows are in memory. 0: none is on disk.
  FetchTicket FetchCold(TableId table, std::span<const Section> sections, std::span<const Key> keys);
  // Whether any row of the table is on disk.
  bool HasCold(TableId table) const;
  // Handles completed disk operations and enforces the budget, of which other parts of the shard use `other_bytes`.
  // Does nothing without a tier.
  Status Maintain(std::size_t other_bytes);
  // Null: the store has no tier, and all rows are in memory.
  Residency* tier() const { return tier_.get(); }

  std::uint64_t row_count() const;
  // Memory of rows, indices and the cut in progress.
  std::uint64_t memory_bytes() const;

 private:
  Table& At(TableId id) const;
  Status UpdateTable(Table& table, const TableSpec& spec);
  void CountSections(const Table& table, std::span<const Section> sections, WorkerRank worker);
  Status Delete(const Table& table, std::span<const Section> sections, std::span<const Key> keys);
  Status ApplySections(Table& table, std::span<const Section> sections, std::span<const Key> keys, PushedRows* rows);
  template <typename Take>
  Status ForEachRun(const Table& table, std::span<const Key> keys, Take take) const;
  std::string NameOf(TableId id, RowOwner owner) const;

  std::uint64_t job_seed_;
  mutable StoreContext context_;  // outlives the fragments
  std::unique_ptr<Residency> tier_;
  Tables tables_;
  Partitions partitions_;
  std::uint32_t places_ = 0;                // one past the highest place of a partition in the tier so far
  std::vector<std::uint32_t> free_places_;  // places of dropped partitions
  mutable RowStepper stepper_;
  mutable TierReader reader_;
  StoreCut cut_;
  Expiry expiry_;
};

}  // namespace tarn::server

// The memory budget for all rows of a shard: divides it among the sparse tables, evicts rows to disk and reads them
// back. LoadRows reads rows into memory, and blocks. Fetch does the same in the background; rows that have arrived need
// no LoadRows. Read copies rows and leaves them on disk.
//
//   Residency tier({.limit_bytes = share, .places = partitions}, std::move(store));
//   ResidentRows* rows = tier.AddTable(id, words);
//   tier.Reserve(rows, n);                       // n free slots, so that n rows can be inserted or read
//   tier.LoadRows(rows, cold_owners);
//
// Memory is divided so that, at the margin, the least used rows of all tables have the same number of uses per byte.
// Errors are the cold store's (kIo, kCorrupt), or kTooLarge if a table has no ids left for rows on disk. They are
// final: the shard stops. Not thread-safe: the shard's thread owns it. Deterministic, except for the times at which the
// store completes operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/metrics/metric_table.h"
#include "server/tier/cold_cut.h"
#include "server/tier/cold_log.h"
#include "server/tier/cold_store.h"
#include "server/tier/resident_rows.h"

namespace tarn::server {

struct ResidencyOptions {
  std::size_t limit_bytes = 0;
  std::uint32_t places = 0;                   // partitions of the shard
  std::uint32_t rows_max = kResidentRowsMax;  // of a table, in memory
};

struct ResidencyCounters {
  std::uint64_t uses = 0;          // rows requested
  std::uint64_t read_waiting = 0;  // rows that LoadRows read, while the shard waited
  std::uint64_t fetched = 0;       // rows read in the background
  std::uint64_t evicted = 0;       // rows that left memory
};
inline constexpr MetricField<ResidencyCounters> kResidencyMetrics[] = {
    {ShardMetric("tier_uses"), &ResidencyCounters::uses},
    {ShardMetric("tier_read_waiting"), &ResidencyCounters::read_waiting},
    {ShardMetric("tier_fetched"), &ResidencyCounters::fetched},
    {ShardMetric("tier_evicted"), &ResidencyCounters::evicted},
};
static_assert(BindsAll(kResidencyMetrics));

// A fetch in progress; 0: none. Fetches end in order.
using FetchTicket = std::uint64_t;

class Residency : private ColdLogListener, private FetchReceiver {
 public:
  Residency(ResidencyOptions options, std::unique_ptr<ColdStore> store);
  ~Residency() override;

  // Describes a row for an error message, by table, key and partition. By default, rows are described by numbers only.
  using RowNamer = std::function<std::string(TableId table, RowOwner owner)>;
  void NameRowsBy(RowNamer namer) { namer_ = std::move(namer); }
  // Errors (kCorrupt): the disk returned another row than `asked`, or, for a cut, a spilled row of another partition
  // than `asked`.
  Error AnotherRow(TableId table, RowOwner asked) const;
  Error WrongPartitionError(TableId table, Key key, PartitionId asked) const;

  // Makes room for partitions with places below `places`.
  void AddPlacesTo(std::uint32_t places);

  // Adds a table with rows of `words` words. The result is valid as long as the residency.
  ResidentRows* AddTable(TableId table, std::size_t words);

  // Adds memory to the table until it has `slots` free slots. False: that would exceed the budget, or the table has its
  // maximum number of slots.
  bool Grow(ResidentRows* rows, std::size_t slots);
  // Makes at least `slots` free slots. May evict any row of any table, so look up rows only after it.
  Status Reserve(ResidentRows* rows, std::size_t slots);
  // Reads cold rows into free slots, of which there must be enough. Sorts `owners`, which may contain duplicates.
  Status LoadRows(ResidentRows* rows, std::vector<RowOwner>* owners);
  // Starts to read cold rows. The returned fetch ends when they are in memory; they are then not evicted soon. 0: none
  // of the rows is cold.
  FetchTicket Fetch(ResidentRows* rows, std::span<const RowOwner> owners);
  bool Ended(FetchTicket ticket) const { return ticket <= ended_; }
  // Whether a fetch and an eviction could start without waiting for others.
  bool HasRoom() const;

  // The records of `owners`, which it sorts. Blocks, and keeps no row in memory.
  Status Read(ResidentRows* rows, std::vector<RowOwner>* owners, std::vector<std::uint32_t>* records);

  // The rows of a checkpoint's cut that are on disk.
  ColdCut& cut() { return cut_; }

  // Counts look-ups of rows, and ages the use counts. While less than half of the budget is used, use counts do not
  // change, because rows are rarely evicted then.
  void CountUses(ResidentRows* rows, std::uint64_t uses);
  // Handles the completed operations of the store.
  Status Poll() { return log_.Poll(); }
  // Returns memory if the budget for rows is exceeded. At most one chunk per call, so that it is short.
  Status Balance();
  // Sets the shard's other memory, which counts towards the budget.
  void SetOtherBytes(std::size_t bytes) { other_bytes_ = bytes; }
  void SetLimit(std::size_t bytes);

  std::size_t limit_bytes() const { return options_.limit_bytes; }
  // Rows that one message may read at a time: a multiple of 64, and so of the group size of look-ups.
  std::size_t SpanRows(const ResidentRows& rows) const;
  std::size_t memory_bytes() const;  // of rows and cold log
  std::uint64_t resident_rows() const;
  std::uint64_t cold_rows() const;
  std::uint64_t disk_bytes() const { return store_->disk_bytes(); }
  const ResidencyCounters& counters() const { return counters_; }

 private:
  struct Table {
    TableId id;
    std::unique_ptr<ResidentRows> rows;
  };

  Status OnFetched(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) override;
  Status OnMoved(TableId table, RowOwner owner, ColdId from, ColdId to) override;

  static std::string NumbersOf(TableId table, RowOwner owner);
  bool Fits(std::size_t bytes) const;
  ResidentRows* LeastWorth(ResidentRows* self);
  Status Evict(ResidentRows* rows, std::size_t wanted);
  Status Release(ResidentRows* rows);
  std::size_t EvictBatch(const ResidentRows& rows) const;
  static std::uint64_t InFlightKey(TableId table, ColdId id) { return std::uint64_t{table.value} << 32 | id; }

  ResidencyOptions options_;
  std::size_t chunk_bytes_;
  std::unique_ptr<ColdStore> store_;
  ColdLog log_;
  ColdCut cut_;
  RowNamer namer_ = NumbersOf;
  std::vector<Table> tables_;
  std::size_t next_table_ = 0;  // compared next, as a source of memory
  std::size_t other_bytes_ = 0;
  ResidencyCounters counters_;

  FetchTicket begun_ = 0, ended_ = 0;                         // the newest fetches begun and ended
  std::unordered_map<std::uint64_t, FetchTicket> in_flight_;  // the fetch of each row being read, by InFlightKey

  // Scratch memory of Read and LoadRows.
  std::vector<ColdId> ids_;
  std::vector<std::uint32_t> records_;
};

}  // namespace tarn::server

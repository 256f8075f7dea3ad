// The locations of cold rows. Rows are appended to the open segment of their table, which is written to the ColdStore
// when it is full; until it is written, reads are served from memory. Freed rows leave holes. A segment without rows is
// removed. When holes take too much of the disk, the rows of the emptiest segments are appended again, and the listener
// is notified of their new ids.
//
//   ColdId id = log.Append(table, {place, number}, words);
//   log.Read(table, ids, out);            // blocks; or
//   log.Fetch(table, ids, receiver);      // ... and later, from Poll: receiver->OnFetched
//   log.Free(table, id);
//
// A record is the row's owner (two words) and then its words as they were appended. A ColdId is valid from Append to
// Free, and means nothing outside its table. Not thread-safe: the shard's thread owns it. Deterministic, except for the
// times at which the store completes operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/tier/cold_id.h"
#include "server/tier/cold_reads.h"
#include "server/tier/cold_store.h"
#include "server/tier/table_segments.h"

namespace tarn::server {

class ColdLogListener {
 public:
  virtual ~ColdLogListener() = default;
  // A row has moved to another id. `owner` comes from the disk; kCorrupt, with the table, the row and the directory, if
  // the owner has no row with the id `from`. The log then fails.
  virtual Status OnMoved(TableId table, RowOwner owner, ColdId from, ColdId to) = 0;
};

struct ColdLogOptions {
  std::size_t segment_bytes = std::size_t{8} << 20;
  // HasRoom is false while the segments that wait to be written have this many times segment_bytes, or more.
  std::uint32_t queued_segments_max = 3;
  ColdId ids_max = kColdIds;  // of a table
};

class ColdLog {
 public:
  // Both outlive it.
  ColdLog(ColdStore* store, ColdLogListener* listener, ColdLogOptions options)
      : store_(store), listener_(listener), options_(options), reads_(store) {}
  ColdLog(const ColdLog&) = delete;
  ColdLog& operator=(const ColdLog&) = delete;

  // Adds a table with rows of `words` words. Must be called before the table is used. `collected`: holes are collected;
  // else rows keep their ids, and a segment is removed only when all its rows are freed.
  void AddTable(TableId table, std::size_t words, bool collected = true);

  // Whether the store keeps up. Rows may be appended all the same, but memory grows.
  bool HasRoom() const { return totals_.queued_bytes < options_.queued_segments_max * options_.segment_bytes; }
  // Blocks until HasRoom. The error is the store's.
  Status WaitForRoom();
  // Stores a row. kTooLarge if all ids of the table are used; holes use ids until they are collected.
  Expected<ColdId> Append(TableId table, RowOwner owner, const std::uint32_t* words);
  void Free(TableId table, ColdId id) { Of(table).Free(id); }
  void FreeAll(TableId table) { Of(table).FreeAll(); }

  // Reads the whole records of `ids`, which must be ascending. Blocks for those that are not in memory.
  Status Read(TableId table, std::span<const ColdId> ids, std::uint32_t* records) {
    return reads_.Read(Of(table), ids, records);
  }
  // The same in the background; Poll calls the receiver, which must outlive the fetch. Fetches end in order.
  void Fetch(TableId table, std::vector<ColdId> ids, FetchReceiver* receiver) {
    reads_.Begin(table, &Of(table), std::move(ids), receiver);
  }

  // Receives results of the store and continues the collection. Calls receivers and the listener. Errors are those of
  // the store, a receiver or the listener, and permanent.
  Status Poll();

  std::size_t record_words(TableId table) const { return Of(table).record_words(); }
  std::uint64_t rows() const { return totals_.rows; }
  // Memory of unwritten segments, fetches, lists and the store.
  std::size_t memory_bytes() const;
  std::size_t fetch_bytes() const { return reads_.bytes(); }
  std::uint64_t segments() const { return totals_.segments; }
  std::uint64_t moved() const { return moved_; }  // rows moved by the collection

 private:
  TableSegments& Of(TableId table) { return *tables_[table.value]; }
  const TableSegments& Of(TableId table) const { return *tables_[table.value]; }
  void SealLargest();
  Status TakeStoreEvents();
  Status Deliver(const ColdFetch& fetch);
  Status MoveRows(const ColdFetch& fetch);
  void Collect();
  std::optional<TableId> FindTight() const;
  std::optional<TableId> FindEmptiest() const;

  ColdStore* store_;
  ColdLogListener* listener_;
  ColdLogOptions options_;
  SegmentTotals totals_;
  std::vector<std::optional<TableSegments>> tables_;
  ColdReads reads_;
  Status failed_;
  bool collecting_ = false;
  std::uint64_t moved_ = 0;
};

}  // namespace tarn::server

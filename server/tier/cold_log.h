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
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/tier/cold_store.h"

namespace tarn::server {

using ColdId = std::uint32_t;
// Maximum number of ids of one table, and so of its rows on a shard's disk, including holes that are not collected yet.
inline constexpr ColdId kColdIds = 1u << 27;

// The owner of a row: the place of its partition and its number there.
struct RowOwner {
  std::uint32_t place = 0;
  std::uint32_t number = 0;
  friend bool operator==(const RowOwner&, const RowOwner&) = default;
};
inline constexpr std::size_t kOwnerWords = 2;

class FetchReceiver {
 public:
  virtual ~FetchReceiver() = default;
  // A fetch has ended: records[i] is the record of ids[i] at the time of the fetch. Some ids may have been freed since,
  // but none is reused. An error ends the log's Poll.
  virtual Status OnFetched(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) = 0;
};

class ColdLogListener {
 public:
  virtual ~ColdLogListener() = default;
  // A row has moved to another id. `owner` comes from the disk; kCorrupt, with the table, the row and the directory, if
  // the owner has no row with the id `from`. The log then fails.
  virtual Status OnMoved(TableId table, RowOwner owner, ColdId from, ColdId to) = 0;
};

struct ColdLogOptions {
  std::size_t segment_bytes = std::size_t{8} << 20;
  // Segments of this size that wait to be written; beyond, there is no room.
  std::uint32_t queued_segments_max = 3;
  ColdId ids_max = kColdIds;  // of a table
};

class ColdLog {
 public:
  // Both outlive it.
  ColdLog(ColdStore* store, ColdLogListener* listener, ColdLogOptions options);
  ~ColdLog();
  ColdLog(const ColdLog&) = delete;
  ColdLog& operator=(const ColdLog&) = delete;

  // Adds a table with rows of `words` words. Must be called before the table is used. `collected`: holes are collected;
  // else rows keep their ids, and a segment is removed when all its rows are.
  void AddTable(TableId table, std::size_t words, bool collected = true);

  // Whether the store keeps up. Rows may be appended all the same, but memory grows.
  bool HasRoom() const { return queued_bytes_ < options_.queued_segments_max * options_.segment_bytes; }
  // Blocks until it does. The error is the store's.
  Status WaitForRoom();
  // Takes a row. kTooLarge when the table has all the ids that there are; before, its holes are collected.
  Expected<ColdId> Append(TableId table, RowOwner owner, const std::uint32_t* words);
  void Free(TableId table, ColdId id);
  // All rows of the table.
  void FreeAll(TableId table);

  // Whole records of ids in ascending order. Blocks for those that are not in memory.
  Status Read(TableId table, std::span<const ColdId> ids, std::uint32_t* records);
  // Reads asynchronously; Poll calls the receiver. Fetches end in order.
  void Fetch(TableId table, std::vector<ColdId> ids, FetchReceiver* receiver);

  // Receives results of the store and continues the collection. Calls receivers and the listener. Errors are those of
  // the store, and permanent.
  Status Poll();

  std::size_t record_words(TableId table) const { return families_[table.value].words + kOwnerWords; }
  std::uint64_t rows() const { return rows_; }
  // Memory of unwritten segments, fetches, lists and the store.
  std::size_t memory_bytes() const;
  std::size_t fetch_bytes() const { return fetch_bytes_; }
  std::uint64_t segments() const { return segments_; }
  std::uint64_t moved() const { return moved_; }  // rows moved by the collection

 private:
  struct Segment {
    enum class State : std::uint8_t { kFree, kOpen, kWriting, kWritten, kRemoving } state = State::kFree;
    std::uint32_t first = 0, blocks = 0;  // its ids; `first` is its number, too
    std::uint32_t count = 0, live = 0;
    std::uint32_t readers = 0;            // fetches in progress that read it
    std::vector<std::uint64_t> alive;     // a bit a record
    std::shared_ptr<SegmentBytes> bytes;  // until written
  };
  struct Family {
    std::size_t words = 0;
    bool collected = true;
    std::uint32_t per_page = 1;
    std::uint32_t capacity_log2 = 0;  // records of a segment, as a rule
    // Ids are taken in blocks, a segment's one after the other; one that is written early gives those back that it did
    // not need.
    std::uint32_t block_log2 = 0;
    std::vector<std::uint32_t> owners;  // by block: the index of its segment, or kNone
    std::size_t free_blocks = 0;        // of those
    std::size_t next_block = 0;         // where free ones are looked for
    std::vector<Segment> segments;
    std::vector<std::uint32_t> free;  // segments without blocks
    std::uint32_t open = kNone;
    std::uint64_t records = 0, live = 0;  // rows with their holes, and without

    std::size_t record_bytes() const { return (words + kOwnerWords) * sizeof(std::uint32_t); }
    std::uint32_t IndexOf(ColdId id) const { return owners[id >> block_log2]; }
    Segment& Of(ColdId id) { return segments[IndexOf(id)]; }
    ColdId FirstId(const Segment& segment) const { return segment.first << block_log2; }
    std::uint32_t Capacity(const Segment& segment) const { return segment.blocks << block_log2; }
    std::size_t SegmentBlocks() const { return std::size_t{1} << (capacity_log2 - block_log2); }
    std::uint64_t UsedIds() const { return (owners.size() - free_blocks) << block_log2; }
  };
  struct Blocks {
    std::size_t first = 0, count = 0;
  };
  struct PendingFetch {
    TableId table;
    std::vector<ColdId> ids;
    std::vector<std::uint32_t> records;
    std::vector<std::uint32_t> from_store;  // places in ids; the store's records go there
    bool waiting = false;                   // for the store
    FetchReceiver* receiver = nullptr;      // null: the rows are to be appended again
  };
  static constexpr std::uint32_t kNone = 0xffffffff;

  Expected<std::uint32_t> OpenSegment(Family& family, TableId table);
  Blocks FindBlocks(const Family& family) const;
  static Blocks NextFree(const Family& family, std::size_t from, std::size_t to);
  void TakeBlocks(Family& family, Blocks blocks, std::uint32_t owner);
  static void GiveBlocks(Family& family, std::size_t first, std::size_t end);
  static std::size_t NextCapacity(const Family& family, std::size_t held);
  void Seal(Family& family, TableId table);
  void SealLargest();
  void Settle(TableId table, std::uint32_t index);
  void CopyFromMemory(const Family& family, const Segment& segment, ColdId id, std::uint32_t* record) const;
  RecordAt At(const Family& family, const Segment& segment, TableId table, ColdId id) const;
  void Begin(PendingFetch fetch);
  Status TakeStoreEvents();
  Status Deliver(PendingFetch fetch);
  Status MoveRows(const PendingFetch& fetch);
  void Collect();
  static double Fullness(const Segment& segment);
  std::optional<TableId> FindTight() const;
  std::optional<TableId> FindEmptiest() const;
  static std::vector<std::uint32_t> EmptiestOf(const Family& family, std::size_t rows);

  ColdStore* store_;
  ColdLogListener* listener_;
  ColdLogOptions options_;
  std::vector<Family> families_;  // by table
  std::deque<PendingFetch> fetches_;
  std::deque<std::vector<std::byte>> fetched_;  // by the store, for the oldest of fetches_ that wait
  Status failed_;
  bool collecting_ = false;
  std::size_t open_bytes_ = 0, queued_bytes_ = 0, fetch_bytes_ = 0, list_bytes_ = 0;
  std::uint64_t rows_ = 0, segments_ = 0, moved_ = 0;
  std::uint64_t written_bytes_ = 0, live_written_bytes_ = 0;  // of tables that are collected
  std::vector<RecordAt> at_;
  std::vector<std::uint32_t> from_store_;
  std::vector<std::byte> read_;
};

}  // namespace tarn::server

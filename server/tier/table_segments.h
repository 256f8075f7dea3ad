// The segments of one table in the cold log. Rows are appended to the open segment, which is handed to the store when
// it is full or Seal is called. A written segment without live rows is removed when no fetch reads it. A hole is the
// record of a freed row in a segment that is not removed yet. A record is the row's owner (two words) and then its
// words. Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/tier/cold_id.h"
#include "server/tier/cold_store.h"
#include "server/tier/id_blocks.h"

namespace tarn::server {

// Sums over the tables of a log.
struct SegmentTotals {
  std::size_t open_bytes = 0, queued_bytes = 0;  // memory of segments that are open, or being written
  std::size_t list_bytes = 0;                    // memory of the lists of segments and id blocks
  std::uint64_t rows = 0, segments = 0;
  // In written segments of collected tables: bytes of all records, and of live ones.
  std::uint64_t written_bytes = 0, live_written_bytes = 0;
};

class TableSegments {
 public:
  struct Options {
    TableId table;
    std::size_t words = 0;  // of a row
    bool collected = true;  // whether the log collects the table's holes
    std::size_t segment_bytes = 0;
    ColdId ids_max = 0;
  };
  // Store and totals outlive it.
  TableSegments(const Options& options, ColdStore* store, SegmentTotals* totals);

  // kTooLarge if all ids are used.
  Expected<ColdId> Append(RowOwner owner, const std::uint32_t* words);
  // Passes the open segment to the store; there must be one.
  void Seal();
  std::size_t open_bytes() const;  // memory of the open segment; 0: there is none

  void Free(ColdId id);
  void FreeAll();
  bool IsLive(ColdId id) const;

  // Copies the record if its segment is in memory. Otherwise returns false, and At returns its location in the store.
  bool CopyFromMemory(ColdId id, std::uint32_t* record) const;
  RecordAt At(ColdId id) const;
  // Between BeginRead and EndRead the segment of `id` is not removed, and none of its ids is reused.
  void BeginRead(ColdId id) { ++Of(id).readers; }
  void EndRead(ColdId id);

  // Must be called when the store has written, or removed, the segment with this number.
  void OnWritten(std::uint32_t number);
  void OnRemoved(std::uint32_t number);

  // Whether more than half of all ids are used, and more than 1/8 of the records are holes.
  bool IsTight() const;
  // The smallest share of live records in a written segment; 1: there is nothing to collect.
  double EmptiestFullness() const;
  // The ids of up to `rows` live rows of the emptiest segments, in ascending order.
  std::vector<ColdId> EmptiestRows(std::size_t rows) const;

  bool collected() const { return options_.collected; }
  std::size_t record_words() const { return options_.words + kOwnerWords; }
  std::size_t record_bytes() const { return record_words() * sizeof(std::uint32_t); }

 private:
  struct Segment {
    enum class State : std::uint8_t { kFree, kOpen, kWriting, kWritten, kRemoving } state = State::kFree;
    std::uint32_t first = 0, blocks = 0;  // its blocks of ids; `first` is also the segment's number in the store
    std::uint32_t count = 0, live = 0;    // records, including holes, and live ones
    std::uint32_t readers = 0;            // fetches in progress that read it
    std::vector<std::uint64_t> alive;     // one bit per record: whether its row is live
    std::shared_ptr<SegmentBytes> bytes;  // until written
  };
  static constexpr std::uint32_t kNone = IdBlocks::kNone;

  Segment& Of(ColdId id) { return segments_[ids_.OwnerOf(id)]; }
  const Segment& Of(ColdId id) const { return segments_[ids_.OwnerOf(id)]; }
  std::uint32_t IndexOf(const Segment& segment, ColdId id) const { return id - ids_.FirstId(segment.first); }
  static bool IsLiveAt(const Segment& segment, std::uint32_t index) {
    return (segment.alive[index / 64] >> (index % 64) & 1) != 0;
  }
  Status Open();
  std::byte* AddRecord(SegmentBytes* segment);
  void RemoveIfUnused(Segment* segment);
  static double Fullness(const Segment& segment);

  Options options_;
  ColdStore* store_;
  SegmentTotals* totals_;
  std::uint32_t per_page_;       // records
  std::uint32_t capacity_log2_;  // log2 of the records of a segment, which has fewer if its run of ids is shorter
  IdBlocks ids_;                 // owners are indices in segments_
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> free_;       // indices in segments_ of those that are kFree
  std::uint32_t open_ = kNone;            // index of the open segment
  std::uint64_t records_ = 0, live_ = 0;  // all records including holes, and live ones
};

}  // namespace tarn::server

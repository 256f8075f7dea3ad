// Where the rows go that a shard's memory budget leaves no room for: segments of pages, written whole beside the
// shard's work, read by page, removed whole. It knows bytes and numbers only; server/tier/cold_log.h says which row
// lies where. An interface, so that a simulated fleet can keep its cold rows in memory.
//
// Scratch: nothing in it outlives the process. What survives a crash is the checkpoint and the log.
//
// Everything is called on the shard's thread. What is done beside it is reported by TakeEvents, for which the shard's
// loop is woken. After the first error nothing is promised any more: the shard stops.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::server {

// A segment of one table. A number may be used again once its removal was reported.
struct SegmentId {
  std::uint32_t table = 0;
  std::uint32_t number = 0;
  friend auto operator<=>(const SegmentId&, const SegmentId&) = default;
};

// The bytes of a segment: pages of `page_bytes` each, but for the last, which may be shorter.
struct SegmentBytes {
  std::vector<std::byte> bytes;
  std::uint32_t page_bytes = 0;
};

// One record to read: `offset` bytes into a page.
struct RecordAt {
  SegmentId segment;
  std::uint32_t page = 0;
  std::uint32_t offset = 0;
  friend auto operator<=>(const RecordAt&, const RecordAt&) = default;
};

struct ColdEvent {
  enum class Kind : std::uint8_t {
    kWritten,  // `segment` can be read; its bytes may go
    kRemoved,  // `segment`'s number may be used again
    kFetched,  // the oldest fetch: `records` are its records, one after the other
    kFailed,   // something did; `error` says what, with the path
  };
  Kind kind = Kind::kFailed;
  SegmentId segment;
  std::vector<std::byte> records;
  Error error;
};

class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Writes a segment. The caller keeps the bytes as they are until kWritten.
  virtual void Write(SegmentId segment, std::shared_ptr<const SegmentBytes> bytes) = 0;
  // Removes a segment that is written, or being written, and that nothing reads.
  virtual void Remove(SegmentId segment) = 0;

  // Reads records of `record_bytes` each, in ascending order and all of written segments, into `out`. Blocks. kCorrupt
  // for a page that fails its checksum, kIo for one that is not there or cannot be read.
  virtual Status Read(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) = 0;
  // The same beside the shard's work; ends with kFetched or kFailed. Fetches end in the order in which they began.
  virtual void Fetch(std::vector<RecordAt> records, std::size_t record_bytes) = 0;

  // What has ended since the last call, in order.
  virtual std::vector<ColdEvent> TakeEvents() = 0;
  // Blocks until a segment under way is written, or something has failed: TakeEvents says what.
  virtual void WaitForWrite() = 0;

  // Where it lies, for errors: a directory.
  virtual std::string where() const = 0;

  // Memory that it takes for itself: indices, caches, buffers; not the bytes of segments that it was handed.
  virtual std::size_t memory_bytes() const = 0;
  virtual std::uint64_t disk_bytes() const = 0;
};

}  // namespace tarn::server

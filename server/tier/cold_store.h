// Storage for the rows that exceed a shard's memory budget: segments of pages, which are written as a whole in the
// background, read by page and removed as a whole. It stores bytes under segment numbers; server/tier/cold_log.h maps
// rows to them. An interface, so that a simulated fleet can store its cold rows in memory.
//
// The contents are temporary and lost with the process. Checkpoints and logs survive a crash.
//
// All functions are called on the shard's thread. TakeEvents reports completed background operations, for which the
// shard's loop is woken. After the first error the state is undefined: the shard stops.
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

// A segment of one table. A number may be reused after its removal was reported.
struct SegmentId {
  std::uint32_t table = 0;
  std::uint32_t number = 0;
  friend auto operator<=>(const SegmentId&, const SegmentId&) = default;
};

// The bytes of a segment: pages of `page_bytes` each, except the last, which may be shorter.
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
    kWritten,  // `segment` can be read; its bytes may be freed
    kRemoved,  // `segment`'s number may be used again
    kFetched,  // the oldest fetch: `records` are its records, one after the other
    kFailed,   // an operation failed; `error` names it and the path
  };
  Kind kind = Kind::kFailed;
  SegmentId segment;
  std::vector<std::byte> records;
  Error error;
};

class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Writes a segment. The caller must keep the bytes unchanged until kWritten.
  virtual void Write(SegmentId segment, std::shared_ptr<const SegmentBytes> bytes) = 0;
  // Removes a segment that is written or being written, and that no fetch reads.
  virtual void Remove(SegmentId segment) = 0;

  // Reads records of `record_bytes` each, in ascending order, only from written segments, into `out`. Blocks. kCorrupt:
  // a page with a wrong checksum; kIo: a page that is missing or cannot be read.
  virtual Status Read(std::span<const RecordAt> records, std::size_t record_bytes, std::byte* out) = 0;
  // The same in the background; ends with kFetched or kFailed. Fetches end in the order in which they were started.
  virtual void Fetch(std::vector<RecordAt> records, std::size_t record_bytes) = 0;

  // The operations that ended since the last call, in order.
  virtual std::vector<ColdEvent> TakeEvents() = 0;
  // Blocks until a write has ended, or a removal has failed; TakeEvents reports it. Returns at once if no write is in
  // progress.
  virtual void WaitForWrite() = 0;

  // Its directory, for errors.
  virtual std::string where() const = 0;

  // Memory of the store itself: indices, caches, buffers; not the callers' bytes of segments.
  virtual std::size_t memory_bytes() const = 0;
  virtual std::uint64_t disk_bytes() const = 0;
};

}  // namespace tarn::server

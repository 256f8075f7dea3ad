// Reads records of the cold log: from segments in memory, and from the store. Fetches run in the background and end in
// the order in which they began. Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/tier/cold_id.h"
#include "server/tier/cold_store.h"
#include "server/tier/table_segments.h"

namespace tarn::server {

class FetchReceiver {
 public:
  virtual ~FetchReceiver() = default;
  // A fetch has ended: records[i] is the record of ids[i] at the time of the fetch. Some ids may have been freed since,
  // but none is reused. After an error the log fails.
  virtual Status OnFetched(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) = 0;
};

// A fetch of some records of one table.
struct ColdFetch {
  TableId table;
  std::vector<ColdId> ids;
  std::vector<std::uint32_t> records;
  FetchReceiver* receiver = nullptr;
};

class ColdReads {
 public:
  // The store outlives it.
  explicit ColdReads(ColdStore* store) : store_(store) {}

  // Reads the whole records of `ids`, which must be ascending. Blocks for those that are not in memory. Errors are the
  // store's.
  Status Read(const TableSegments& segments, std::span<const ColdId> ids, std::uint32_t* records);
  // Begins a fetch of ascending ids. `segments` are those of `table`. Calls BeginRead for each id; the caller must call
  // EndRead for each after Next has returned the fetch.
  void Begin(TableId table, TableSegments* segments, std::vector<ColdId> ids, FetchReceiver* receiver);
  // Receives the records that the store has read for the oldest fetch that waits for the store.
  void OnRead(std::vector<std::byte> records) { read_.push_back(std::move(records)); }
  // The oldest fetch, if it has ended.
  std::optional<ColdFetch> Next();

  // Memory of fetches in progress.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Pending {
    ColdFetch fetch;
    std::size_t record_bytes = 0;
    std::vector<std::uint32_t> from_store;  // indices in fetch.ids of the records that the store reads
    std::size_t bytes() const { return (fetch.ids.size() + from_store.size()) * record_bytes; }
  };

  ColdStore* store_;
  std::deque<Pending> pending_;
  std::deque<std::vector<std::byte>> read_;  // results of the store, for the oldest fetches that wait for it
  std::size_t bytes_ = 0;
  // Scratch memory of Read.
  std::vector<RecordAt> at_;
  std::vector<std::uint32_t> from_store_;
  std::vector<std::byte> buffer_;
};

}  // namespace tarn::server

// Brings the rows that a message needs from the tier's disk into memory before they are looked at, and keeps the
// shard's memory within its budget. Errors are the tier's, and final. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/error.h"
#include "server/store/row_finder.h"
#include "server/store/store_context.h"
#include "server/store/table.h"
#include "server/tier/residency.h"

namespace tarn::server {

class TierReader {
 public:
  // memory_bytes() is what the whole store takes, the tier included.
  TierReader(StoreContext* context, std::function<std::uint64_t()> memory_bytes)
      : context_(context), memory_bytes_(std::move(memory_bytes)) {}

  // Makes room for the next rows of a message and reads those of them that are on disk. Returns how many rows that
  // were: none of them leaves memory before they are done. Of a table without a budget: all that are left.
  Expected<std::size_t> BringIn(const Table& table, const KeyCursor& cursor) {
    if (table.resident() == nullptr) return cursor.left();
    return BringInCold(table, cursor);
  }
  // Begins to read the rows of a message that are on disk, beside the shard's work; 0: they all are in memory.
  FetchTicket Fetch(const Table& table, const KeyCursor& cursor);

  // Takes in what the disk has done and evicts what the budget has no room for.
  Status Tend(std::size_t other_bytes);
  // After rows were loaded: the same with memory counted anew.
  Status Rebalance() {
    CountOthers();
    return Tend(other_bytes_);
  }

 private:
  Expected<std::size_t> BringInCold(const Table& table, const KeyCursor& cursor);
  void CountOthers();
  std::size_t FindCold(const Table& table, KeyCursor cursor, std::size_t rows, bool spare);

  StoreContext* context_;
  std::function<std::uint64_t()> memory_bytes_;
  std::size_t other_bytes_ = 0;  // of the last Tend
  std::size_t index_bytes_ = 0;  // of the last CountOthers
  std::uint32_t spans_ = 0;
};

}  // namespace tarn::server

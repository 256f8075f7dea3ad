// Reads the rows of a message from the tier's disk into memory before they are used, and keeps the shard's memory
// within its budget. Errors are those of the tier, and permanent. Not thread-safe.
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
  // memory_bytes(): memory of the whole store, including the tier.
  TierReader(StoreContext* context, std::function<std::uint64_t()> memory_bytes)
      : context_(context), memory_bytes_(std::move(memory_bytes)) {}

  // Makes room for the next keys of a message and reads those of their rows that are on disk. Returns the number of
  // these keys: their rows stay in memory until they are processed. All keys that are left if the table has no budget.
  Expected<std::size_t> BringIn(const Table& table, const KeyCursor& cursor) {
    if (table.resident() == nullptr) return cursor.left();
    return BringInCold(table, cursor);
  }
  // Starts to read the rows of a message that are on disk, while the shard continues. Returns 0 if all are in memory.
  FetchTicket Fetch(const Table& table, const KeyCursor& cursor);

  // Receives completed reads and writes, and evicts rows beyond the budget.
  Status Tend(std::size_t other_bytes);
  // The same after rows were loaded: first counts memory again.
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

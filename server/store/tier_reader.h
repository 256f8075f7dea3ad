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

  // Makes room for the rows of the next keys of a message and reads the rows that are on disk. Returns the number of
  // keys covered; their rows stay in memory until they are processed. If the table has no budget, covers all remaining
  // keys.
  Expected<std::size_t> LoadRows(const Table& table, const KeyCursor& cursor) {
    if (table.resident() == nullptr) return cursor.left();
    return LoadColdRows(table, cursor);
  }
  // Starts to read the rows of a message that are on disk, while the shard continues. Returns 0 if all are in memory.
  FetchTicket Fetch(const Table& table, const KeyCursor& cursor);

  // Receives completed reads and writes, and evicts rows beyond the budget. `other_bytes`: memory of the shard outside
  // the store, which counts towards the budget.
  Status Maintain(std::size_t other_bytes);
  // The same after rows were loaded: first counts the store's memory again.
  Status Rebalance() {
    CountStoreBytes();
    return Maintain(bytes_outside_store_);
  }

 private:
  Expected<std::size_t> LoadColdRows(const Table& table, const KeyCursor& cursor);
  void CountStoreBytes();
  std::size_t FindCold(const Table& table, KeyCursor cursor, std::size_t rows, bool mark_used);

  StoreContext* context_;
  std::function<std::uint64_t()> memory_bytes_;
  std::size_t bytes_outside_store_ = 0;       // of the last Maintain
  std::size_t store_bytes_outside_tier_ = 0;  // of the last CountStoreBytes
  std::uint32_t spans_ = 0;                   // calls of LoadColdRows
};

}  // namespace tarn::server

// Storage of the rows of one sparse fragment: an index from keys to row numbers, and the rows by number. Rows are in
// slabs or, with a memory budget, in the tier's slots or on its disk. A row keeps its number until it is removed;
// numbers of removed rows are reused. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/store/row_index.h"
#include "server/store/row_slabs.h"
#include "server/store/store_context.h"
#include "server/store/table.h"
#include "server/tier/resident_rows.h"

namespace tarn::server {

class SparseRows {
 public:
  // `place` is the fragment's partition in the tier.
  SparseRows(const Table& table, std::uint32_t place, StoreContext* context);
  SparseRows(const SparseRows&) = delete;
  SparseRows& operator=(const SparseRows&) = delete;

  const RowIndex& index() const { return index_; }
  const RowSlabs& slabs() const { return slabs_; }  // empty with a tier
  std::uint32_t place() const { return place_; }

  // One past the highest number ever used.
  std::uint32_t NumberEnd() const { return resident_ != nullptr ? tier_end_ : slabs_.size(); }
  // The row's values and slots; null if it is on disk.
  float* Row(std::uint32_t number) const {
    return resident_ != nullptr ? resident_->Row(place_, number) : slabs_.Row(number);
  }
  // Only for tables with a life.
  RowLife* Life(std::uint32_t number) const { return reinterpret_cast<RowLife*>(lives_.Row(number)); }
  RowParts Parts(std::uint32_t number) const { return PartsAt(Row(number), number); }
  // The parts of a row whose values and slots are at `values` (may be null).
  RowParts PartsAt(float* values, std::uint32_t number) const {
    return {values, values + value_words_, with_life_ ? Life(number) : nullptr};
  }

  // Inserts an uninitialised row for a key that has none. Returns its number. With a tier, the table must have a free
  // slot (Residency::Reserve).
  std::uint32_t Insert(std::uint64_t hash, Key key);
  // Removes the row of a key. Returns its number, or RowIndex::kNone if there was none.
  std::uint32_t Erase(std::uint64_t hash, Key key);

  // Removes all rows and returns their memory to the arena, and their slots and disk space to the tier. Only the
  // destructor may be called after it.
  void Release();

  std::size_t memory_bytes() const { return index_.memory_bytes() + free_.capacity() * sizeof(free_[0]); }

 private:
  static constexpr std::uint32_t kLifeWords = sizeof(RowLife) / sizeof(float);

  std::uint32_t value_words_;
  bool with_life_;
  RowIndex index_;
  RowSlabs slabs_;                   // values and slots, by number; empty with a tier
  ResidentRows* resident_;           // the table's; null: no tier
  std::uint32_t place_;              // of the partition in the tier
  std::uint32_t tier_end_ = 0;       // NumberEnd with a tier
  RowSlabs lives_;                   // by number; empty if the table has no life
  std::vector<std::uint32_t> free_;  // numbers of removed rows
};

}  // namespace tarn::server

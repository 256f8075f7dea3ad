// The state of each row of a sparse table, in one word: where the row is, and how often it was used
// (server/tier/use_count.h). A row is identified by the place of its partition and its number there. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/hash.h"
#include "server/tier/cold_id.h"
#include "server/tier/row_slots.h"
#include "server/tier/use_count.h"

namespace tarn::server {

// Of a row in memory: its slot, and whether the cold log has a copy. Of a cold row: its id. Of both: the use count.
class RowState {
 public:
  RowState() = default;  // of a number without a row
  // Of a row in memory that was used once.
  explicit RowState(std::uint32_t slot) : bits_(slot | 1u << kCountShift) {}

  bool is_cold() const { return (bits_ & kCold) != 0; }
  ColdId cold_id() const { return bits_ & kColdMask; }
  bool IsColdAt(ColdId id) const { return (bits_ & ~kCountMask) == (kCold | id); }
  std::uint32_t slot() const { return bits_ & kSlotMask; }
  bool has_copy() const { return (bits_ & kHasCopy) != 0; }  // only for a row in memory
  std::uint32_t count() const { return bits_ >> kCountShift & kUseCountMax; }

  // These keep the count.
  void MoveTo(std::uint32_t slot, bool has_copy) { bits_ = (bits_ & kCountMask) | (has_copy ? kHasCopy : 0) | slot; }
  void MoveToDisk(ColdId id) { bits_ = kCold | (bits_ & kCountMask) | id; }
  void DropCopy() { bits_ &= ~kHasCopy; }
  void SetCount(std::uint32_t count) { bits_ += (count - this->count()) << kCountShift; }

 private:
  static constexpr std::uint32_t kCold = 1u << 31;
  static constexpr std::uint32_t kCountShift = 27;
  static constexpr std::uint32_t kColdMask = (1u << 27) - 1;
  static constexpr std::uint32_t kHasCopy = 1u << 26;
  static constexpr std::uint32_t kSlotMask = kResidentRowsMax;
  static constexpr std::uint32_t kCountMask = kUseCountMax << kCountShift;
  static_assert(kColdIds == kColdMask + 1);

  std::uint32_t bits_ = kSlotMask;  // no slot has this number
};

class RowStates {
 public:
  explicit RowStates(std::uint32_t places) : places_(places) {}

  // Makes room for partitions with places below `places`.
  void AddPlacesTo(std::uint32_t places) {
    if (places_.size() < places) places_.resize(places);
  }

  // The number must have, or have had, a row.
  const RowState& At(std::uint32_t place, std::uint32_t number) const {
    return places_[place].pages[number / kPageWords][number % kPageWords];
  }
  RowState& At(std::uint32_t place, std::uint32_t number) {
    return places_[place].pages[number / kPageWords][number % kPageWords];
  }
  // Whether At may be called.
  bool Has(std::uint32_t place, std::uint32_t number) const {
    return place < places_.size() && number < places_[place].end;
  }

  // `number` is one past the highest of the place so far, or that of a removed row.
  void Add(std::uint32_t place, std::uint32_t number, std::uint32_t slot);
  void Remove(std::uint32_t place, std::uint32_t number);

  void CountUse(std::uint32_t place, std::uint32_t number) {
    RowState& state = At(place, number);
    state.SetCount(AfterUse(state.count(), random_));
  }
  // Ages counts. `uses`: number of rows used since the last call; `resident`: number of rows in memory.
  void Age(std::uint64_t uses, std::uint64_t resident);

  std::uint64_t rows() const { return rows_; }
  std::size_t memory_bytes() const { return bytes_; }

 private:
  static constexpr std::uint32_t kPageWords = 1024;
  struct Place {
    std::vector<std::unique_ptr<RowState[]>> pages;
    std::uint32_t end = 0;  // one past the highest number
  };

  std::vector<Place> places_;
  std::size_t bytes_ = 0;
  std::uint64_t rows_ = 0;
  Aging aging_;
  std::uint32_t aged_place_ = 0, aged_number_ = 0;  // the row whose count is aged next
  SplitMix random_{1};
};

}  // namespace tarn::server

// The rows of one sparse table under a memory budget: those in memory, in slots that all partitions share, and where
// the others lie in the cold log. A row is known by the place of its partition and its number there; one word a row
// says where it is and how often it is used (server/tier/use_count.h).
//
//   if (float* row = rows.Row(place, number)) ...; else it is cold: rows.cold_id(place, number)
//   rows.Add(place, number)       // a birth: uninitialised, in a free slot
//   rows.Install(...)             // a cold row's record has come
//   rows.MarkChanged(...)         // before a row in memory is changed: its copy on disk, if any, is outdated
//   rows.Evict(n)                 // n of the least used rows leave memory; unchanged ones without being written
//
// Nothing here evicts but Evict and ReleaseChunk, so pointers stay valid between them: who needs n free slots for a
// group of rows asks for them first. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "core/types.h"
#include "server/tier/cold_log.h"
#include "server/tier/use_count.h"

namespace tarn::server {

// Rows of one table that can be in memory, at least but for those of one chunk: slots have numbers, and one is no slot.
inline constexpr std::uint32_t kResidentRowsMax = (1u << 26) - 1;

class ResidentRows {
 public:
  // A row has `words` words. Chunks take `chunk_bytes`, or what one row needs, to twice as much. `log` outlives it.
  ResidentRows(TableId table, std::size_t words, std::uint32_t places, std::size_t chunk_bytes, ColdLog* log);
  ~ResidentRows();
  ResidentRows(const ResidentRows&) = delete;
  ResidentRows& operator=(const ResidentRows&) = delete;

  // Partitions have places below.
  void AddPlacesTo(std::uint32_t places) {
    if (words_.size() < places) words_.resize(places);
  }

  // Null if the row is cold.
  float* Row(std::uint32_t place, std::uint32_t number) const {
    const std::uint32_t word = WordOf(place, number);
    return (word & kCold) != 0 ? nullptr : SlotRow(word & kSlotMask);
  }
  bool IsCold(std::uint32_t place, std::uint32_t number) const { return (WordOf(place, number) & kCold) != 0; }
  // Whether there is such a row and it is cold under this id.
  bool IsColdAt(std::uint32_t place, std::uint32_t number, ColdId id) const {
    return place < words_.size() && number < words_[place].end && (WordOf(place, number) & ~kCountMask) == (kCold | id);
  }
  ColdId cold_id(std::uint32_t place, std::uint32_t number) const { return WordOf(place, number) & kColdMask; }
  [[gnu::always_inline]] void PrefetchWord(std::uint32_t place, std::uint32_t number) const {
    __builtin_prefetch(&WordOf(place, number));
  }

  void CountUse(std::uint32_t place, std::uint32_t number) {
    std::uint32_t& word = WordOf(place, number);
    const std::uint32_t before = word >> kCountShift & kUseCountMax, after = AfterUse(before, random_);
    if (after != before) word += (after - before) << kCountShift;
  }
  void MarkChanged(std::uint32_t place, std::uint32_t number) {
    const std::uint32_t word = WordOf(place, number);
    if ((word & kHasCopy) != 0) [[unlikely]]
      DropCopy(place, number);
  }

  // Takes a free slot, of which there must be one. `number` may be one past the highest so far, or was removed.
  float* Add(std::uint32_t place, std::uint32_t number);
  void Remove(std::uint32_t place, std::uint32_t number);
  // The record of a cold row, of which memory then holds an unchanged copy; takes a free slot.
  float* Install(std::uint32_t place, std::uint32_t number, const std::uint32_t* words);
  // The row in memory waits for its use: it is not evicted the next time that its turn comes.
  void Spare(std::uint32_t place, std::uint32_t number) { InfoOf(WordOf(place, number) & kSlotMask).spared = true; }
  // The row is about to be overwritten whole: what is on disk of it goes, unread, and a cold one takes a free slot.
  float* Overwrite(std::uint32_t place, std::uint32_t number);
  // A cold row's id has become another (ColdLogListener::OnMoved), or the id of a copy has. False, and nothing is
  // changed: there is no such row, or it is not under `from`.
  bool OnMoved(RowOwner owner, ColdId from, ColdId to);

  // One chunk more of free slots. False if the table has as many slots as there are numbers for.
  bool AddChunk();
  // Evicts `wanted` rows, all if there are fewer. The error is the cold store's.
  Status Evict(std::size_t wanted);
  // Gives a chunk back to the system, evicting what does not fit into the others. Not the last one.
  Status ReleaseChunk();
  // Uses of the row that would go next, over its bytes: what a byte of this table is worth. 0 if its slots are as good
  // as empty where the hand is.
  double WorthOfByte();
  // Ages counts; `uses` rows were used since the last call.
  void Age(std::uint64_t uses);

  std::size_t free_slots() const { return free_slots_; }
  std::size_t resident() const { return chunks_.size() * rows_per_chunk_ - free_slots_; }
  std::uint64_t rows() const { return rows_; }
  std::uint64_t cold() const { return rows_ - resident(); }
  std::size_t chunks() const { return chunks_.size(); }
  // Rows that fit into as many chunks as there can be.
  std::size_t slots_max() const { return kResidentRowsMax / rows_per_chunk_ * std::size_t{rows_per_chunk_}; }
  TableId table() const { return table_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t memory_bytes() const { return chunks_.size() * chunk_bytes_ + word_bytes_; }

 private:
  // A row's word: kCold and its id, or its slot and whether the cold log has a copy; and in both cases its count.
  static constexpr std::uint32_t kCold = 1u << 31;
  static constexpr std::uint32_t kCountShift = 27;
  static constexpr std::uint32_t kColdMask = (1u << 27) - 1;
  static constexpr std::uint32_t kHasCopy = 1u << 26;
  static constexpr std::uint32_t kSlotMask = kResidentRowsMax;
  static constexpr std::uint32_t kCountMask = kUseCountMax << kCountShift;
  static_assert(kColdIds == kColdMask + 1);
  static constexpr std::uint32_t kPageWords = 1024;
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::uint32_t kNever = kSlotMask;  // the word of a number without a row; no slot has it

  // Of a slot. A free one's number is the next free slot of its chunk.
  struct SlotInfo {
    std::uint32_t place = kNone;  // kNone: free
    std::uint32_t number = 0;
    ColdId copy : 31 = 0;  // if the row's word has kHasCopy
    bool spared : 1 = false;
  };
  static_assert(sizeof(SlotInfo) == 12);
  struct Chunk {
    std::byte* memory = nullptr;  // rows, then a SlotInfo each
    std::uint32_t first_free = 0;
    std::uint32_t free = 0;
  };
  struct Words {
    std::vector<std::unique_ptr<std::uint32_t[]>> pages;
    std::uint32_t end = 0;  // one past the highest number
  };

  const std::uint32_t& WordOf(std::uint32_t place, std::uint32_t number) const {
    return words_[place].pages[number / kPageWords][number % kPageWords];
  }
  std::uint32_t& WordOf(std::uint32_t place, std::uint32_t number) {
    return words_[place].pages[number / kPageWords][number % kPageWords];
  }
  float* SlotRow(std::uint32_t slot) const {
    return reinterpret_cast<float*>(chunks_[slot >> slot_shift_].memory +
                                    std::size_t{slot & ((1u << slot_shift_) - 1)} * row_bytes_);
  }
  SlotInfo& InfoOf(std::uint32_t slot) const {
    return reinterpret_cast<SlotInfo*>(chunks_[slot >> slot_shift_].memory +
                                       info_offset_)[slot & ((1u << slot_shift_) - 1)];
  }
  std::uint32_t CountOf(std::uint32_t place, std::uint32_t number) const {
    return WordOf(place, number) >> kCountShift & kUseCountMax;
  }
  std::uint32_t TakeSlot(std::uint32_t place, std::uint32_t number);
  void FreeSlot(std::uint32_t slot);
  void DropCopy(std::uint32_t place, std::uint32_t number);
  void FindVictims(std::size_t wanted);
  std::uint32_t SlotAfter(std::uint32_t slot) const;
  void LookAtNext();
  Status EvictSlot(std::uint32_t slot);
  void MoveOutOf(std::uint32_t chunk);

  TableId table_;
  std::size_t words_per_row_;
  std::size_t row_bytes_;
  std::size_t chunk_bytes_;
  std::size_t info_offset_ = 0;
  std::uint32_t rows_per_chunk_ = 0;
  std::uint32_t slot_shift_ = 0;
  ColdLog* log_;
  std::vector<Words> words_;  // by place
  std::vector<Chunk> chunks_;
  std::uint32_t first_chunk_ = 0;  // none before it has free slots
  std::size_t free_slots_ = 0, word_bytes_ = 0;
  std::uint64_t rows_ = 0;
  std::uint32_t hand_ = 0;  // slot, in order of chunks
  Aging aging_;
  std::uint32_t aged_place_ = 0, aged_number_ = 0;
  SplitMix random_{1};
  std::vector<std::uint32_t> candidates_;  // slots
  std::vector<std::uint8_t> counts_;
};

}  // namespace tarn::server

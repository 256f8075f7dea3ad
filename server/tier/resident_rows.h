// The rows of one sparse table under a memory budget: the rows in memory, in slots shared by all partitions, and the
// locations of the others in the cold log. A row is identified by the place of its partition and its number there. One
// word per row stores its location and its use count (server/tier/use_count.h).
//
//   if (float* row = rows.Row(place, number)) ...; else it is cold: rows.cold_id(place, number)
//   rows.Add(place, number)       // a birth: uninitialised, in a free slot
//   rows.Install(...)             // the record of a cold row was read
//   rows.MarkChanged(...)         // before a row in memory is changed: its copy on disk, if any, is outdated
//   rows.Evict(n)                 // n of the least used rows leave memory; unchanged ones without being written
//
// Only Evict and ReleaseChunk evict, so pointers stay valid between them: reserve the free slots for a group of rows
// before using it. Not thread-safe.
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

// Maximum of rows of one table in memory, up to one chunk less: the limit of slot numbers, of which one means "no
// slot".
inline constexpr std::uint32_t kResidentRowsMax = (1u << 26) - 1;

class ResidentRows {
 public:
  // A row has `words` words. Chunks take `chunk_bytes` to twice as much, at least one row. `log` outlives it.
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
  // Whether the row exists and is cold with this id.
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

  // Takes a free slot; there must be one. `number` is one past the highest so far, or that of a removed row.
  float* Add(std::uint32_t place, std::uint32_t number);
  void Remove(std::uint32_t place, std::uint32_t number);
  // Stores the record of a cold row as an unchanged copy in memory; takes a free slot.
  float* Install(std::uint32_t place, std::uint32_t number, const std::uint32_t* words);
  // Marks a row in memory as about to be used: the next eviction pass skips it.
  void Spare(std::uint32_t place, std::uint32_t number) { InfoOf(WordOf(place, number) & kSlotMask).spared = true; }
  // Prepares a row to be overwritten completely: drops its copy on disk without reading it; a cold row takes a free
  // slot.
  float* Overwrite(std::uint32_t place, std::uint32_t number);
  // Changes the id of a cold row or of a row's copy on disk (ColdLogListener::OnMoved). Returns false and changes
  // nothing if the row does not exist or does not have the id `from`.
  bool OnMoved(RowOwner owner, ColdId from, ColdId to);

  // Adds a chunk of free slots. False if all slot numbers are used.
  bool AddChunk();
  // Evicts `wanted` rows, all if there are fewer. The error is the cold store's.
  Status Evict(std::size_t wanted);
  // Returns a chunk to the system and evicts the rows that do not fit into the others. Keeps the last chunk.
  Status ReleaseChunk();
  // The use count of the next row to be evicted, divided by its bytes: the value of a byte of this table. 0 if the
  // slots at the clock hand are almost empty.
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

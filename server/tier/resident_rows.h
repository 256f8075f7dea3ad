// The rows of one sparse table under a memory budget: the rows in memory, in slots shared by all partitions
// (server/tier/row_slots.h), and the locations of the others in the cold log (server/tier/row_states.h). A row is
// identified by the place of its partition and its number there.
//
//   if (float* row = rows.Row(place, number)) ...; else it is cold: rows.cold_id(place, number)
//   rows.Add(place, number)       // a new row: uninitialised, in a free slot
//   rows.Install(...)             // the record of a cold row was read
//   rows.MarkChanged(...)         // before a row in memory is changed: its copy on disk, if any, is outdated
//   rows.Evict(n)                 // n of the least used rows leave memory; unchanged ones without being written
//
// A pointer to a row is valid until the next Evict or ReleaseChunk, or until the row is removed. So make free slots for
// all rows of a group (Residency::Reserve) before you use pointers to them. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/tier/cold_log.h"
#include "server/tier/row_slots.h"
#include "server/tier/row_states.h"

namespace tarn::server {

class ResidentRows {
 public:
  // A row has `words` words. Chunks take `chunk_bytes` to twice as much, at least one row. At most `slots_max` rows are
  // in memory. `log` outlives it.
  ResidentRows(TableId table, std::size_t words, std::uint32_t places, std::size_t chunk_bytes, std::uint32_t slots_max,
               ColdLog* log)
      : table_(table), log_(log), slots_(words, chunk_bytes, slots_max), states_(places) {}

  // Makes room for partitions with places below `places`.
  void AddPlacesTo(std::uint32_t places) { states_.AddPlacesTo(places); }

  // The row in memory; null if it is cold.
  float* Row(std::uint32_t place, std::uint32_t number) const {
    const RowState state = states_.At(place, number);
    return state.is_cold() ? nullptr : slots_.Row(state.slot());
  }
  bool IsCold(std::uint32_t place, std::uint32_t number) const { return states_.At(place, number).is_cold(); }
  // Whether the row exists and is cold with this id.
  bool IsColdAt(std::uint32_t place, std::uint32_t number, ColdId id) const {
    return states_.Has(place, number) && states_.At(place, number).IsColdAt(id);
  }
  ColdId cold_id(std::uint32_t place, std::uint32_t number) const { return states_.At(place, number).cold_id(); }
  [[gnu::always_inline]] void PrefetchWord(std::uint32_t place, std::uint32_t number) const {
    __builtin_prefetch(&states_.At(place, number));
  }

  // Enables or disables CountUse. Enabled initially.
  void SetCounting(bool counting) { counting_ = counting; }
  void CountUse(std::uint32_t place, std::uint32_t number) {
    if (counting_) states_.CountUse(place, number);
  }
  void MarkChanged(std::uint32_t place, std::uint32_t number) {
    if (states_.At(place, number).has_copy()) [[unlikely]]
      DropCopy(place, number);
  }

  // Takes a free slot; there must be one. `number` is one past the highest so far, or that of a removed row.
  float* Add(std::uint32_t place, std::uint32_t number);
  void Remove(std::uint32_t place, std::uint32_t number);
  // Stores the record of a cold row as an unchanged copy in memory; takes a free slot.
  float* Install(std::uint32_t place, std::uint32_t number, const std::uint32_t* words);
  // Marks a row in memory as about to be used: the next eviction pass skips it.
  void Spare(std::uint32_t place, std::uint32_t number) { slots_.Of(states_.At(place, number).slot()).spared = true; }
  // Prepares a row to be overwritten completely: drops its copy on disk without reading it; a cold row takes a free
  // slot.
  float* Overwrite(std::uint32_t place, std::uint32_t number);
  // Changes the id of a cold row or of a row's copy on disk (ColdLogListener::OnMoved). Returns false and changes
  // nothing if the row does not exist or does not have the id `from`.
  bool OnMoved(RowOwner owner, ColdId from, ColdId to);

  // Adds a chunk of free slots. False if all slot numbers are used.
  bool AddChunk() { return slots_.AddChunk(); }
  // Whether the table may have another chunk.
  bool MayAddChunk() const { return slots_.HasNumbers(); }
  // Evicts `wanted` rows, all if there are fewer. Errors are those of ColdLog::Append and WaitForRoom.
  Status Evict(std::size_t wanted);
  // Returns a chunk to the system and evicts the rows that do not fit into the others. There must be at least two
  // chunks. Errors as for Evict.
  Status ReleaseChunk();
  // The value of a byte of this table: the average number of uses of the least used rows in a sample at the clock hand,
  // divided by the bytes of a row. 0 if no row is in memory, or if almost all slots at the clock hand are free.
  double WorthOfByte();
  // Ages counts. `uses`: number of rows used since the last call.
  void Age(std::uint64_t uses) { states_.Age(uses, resident()); }

  std::size_t free_slots() const { return slots_.free(); }
  std::size_t resident() const { return slots_.used(); }
  std::uint64_t rows() const { return states_.rows(); }
  std::uint64_t cold() const { return rows() - resident(); }
  std::size_t chunks() const { return slots_.chunks(); }
  TableId table() const { return table_; }
  std::size_t chunk_bytes() const { return slots_.chunk_bytes(); }
  std::size_t row_bytes() const { return slots_.row_bytes(); }
  std::size_t memory_bytes() const { return slots_.memory_bytes() + states_.memory_bytes(); }

 private:
  std::uint32_t CountIn(std::uint32_t slot) const;
  void DropCopy(std::uint32_t place, std::uint32_t number);
  void FindVictims(std::size_t wanted);
  void ExamineNext();
  Status EvictSlot(std::uint32_t slot);
  void EmptyLastChunk();

  TableId table_;
  ColdLog* log_;
  RowSlots slots_;
  RowStates states_;
  bool counting_ = true;
  std::uint32_t hand_ = 0;  // the clock hand: the slot from which rows to evict are searched for next
  // Scratch memory: slots whose rows may be evicted, and use counts.
  std::vector<std::uint32_t> candidates_;
  std::vector<std::uint8_t> counts_;
};

}  // namespace tarn::server

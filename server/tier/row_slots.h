// The memory of one sparse table's rows: slots in chunks, which are mapped and unmapped as a whole. Each slot holds a
// row and its owner.
//
//   std::uint32_t slot = slots.Take(place, number);    // a free slot, in the lowest chunk that has one
//   float* row = slots.Row(slot);
//   slots.Free(slot);
//
// Pointers to rows are valid until their slot is freed. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.h"
#include "server/tier/cold_id.h"

namespace tarn::server {

// Upper bound of the slots of one table; only whole chunks below it are used. As a slot number it means "no slot".
inline constexpr std::uint32_t kResidentRowsMax = (1u << 26) - 1;

class RowSlots {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  // The row in a slot. In a free slot, `number` is the index of the next free slot in the chunk (kNone: there is none).
  struct Info {
    std::uint32_t place = kNone;  // kNone: free
    std::uint32_t number = 0;
    ColdId copy : 31 = 0;     // the row's copy on disk, if it has one
    bool spared : 1 = false;  // the next eviction pass skips the row
  };
  static_assert(sizeof(Info) == 12);

  // A row has `words` words. Chunks take `chunk_bytes` to twice as much, at least one row. At most `slots_max` slots.
  RowSlots(std::size_t words, std::size_t chunk_bytes, std::uint32_t slots_max = kResidentRowsMax);
  ~RowSlots();
  RowSlots(const RowSlots&) = delete;
  RowSlots& operator=(const RowSlots&) = delete;

  float* Row(std::uint32_t slot) const {
    return reinterpret_cast<float*>(chunks_[slot >> shift_].memory + std::size_t{IndexOf(slot)} * row_bytes_);
  }
  Info& Of(std::uint32_t slot) const {
    return reinterpret_cast<Info*>(chunks_[slot >> shift_].memory + info_offset_)[IndexOf(slot)];
  }
  // Overwrites the row in a slot.
  void Write(std::uint32_t slot, const std::uint32_t* words);

  // Stores the owner in a free slot of the lowest chunk that has one, and returns the slot. There must be one.
  std::uint32_t Take(std::uint32_t place, std::uint32_t number);
  void Free(std::uint32_t slot);
  // The next slot; after the last one, the first.
  std::uint32_t After(std::uint32_t slot) const;
  bool Has(std::uint32_t slot) const { return slot >> shift_ < chunks_.size(); }

  // Whether slot numbers are left for another chunk.
  bool HasNumbers() const { return (chunks_.size() + 1) << shift_ <= slots_max_; }
  // Adds a chunk of free slots. False if there are no numbers for it.
  bool AddChunk();
  // Of the last chunk: the first slot, and the rows in it.
  std::uint32_t LastChunk() const { return static_cast<std::uint32_t>(chunks_.size() - 1) << shift_; }
  std::size_t RowsInLastChunk() const { return rows_per_chunk_ - chunks_.back().free; }
  // Unmaps the last chunk, which must have no rows. There must be another one.
  void DropLastChunk();

  std::size_t free() const { return free_; }
  std::size_t used() const { return chunks_.size() * rows_per_chunk_ - free_; }
  std::size_t chunks() const { return chunks_.size(); }
  std::uint32_t rows_per_chunk() const { return rows_per_chunk_; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  std::size_t memory_bytes() const { return chunks_.size() * chunk_bytes_; }

 private:
  struct Chunk {
    std::byte* memory = nullptr;  // rows, then an Info each
    std::uint32_t first_free = 0;
    std::uint32_t free = 0;
  };

  std::uint32_t IndexOf(std::uint32_t slot) const { return slot & ((1u << shift_) - 1); }

  std::size_t words_;
  std::size_t row_bytes_;
  std::size_t chunk_bytes_ = 0;
  std::size_t info_offset_ = 0;
  std::uint32_t rows_per_chunk_ = 0;
  std::uint32_t shift_ = 0;
  std::uint32_t slots_max_;
  std::vector<Chunk> chunks_;
  std::uint32_t first_chunk_ = 0;  // none before it has free slots
  std::size_t free_ = 0;
};

}  // namespace tarn::server

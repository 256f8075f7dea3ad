#include "server/tier/row_slots.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "server/tier/chunk_memory.h"

namespace tarn::server {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPaddingBytesMax = 8;
constexpr std::size_t kPageBytes = 4096;

constexpr std::size_t RoundUp(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Rounds up to whole cache lines if that adds little.
std::size_t RowBytes(std::size_t words) {
  const std::size_t bytes = words * sizeof(std::uint32_t), whole = RoundUp(bytes, kLineBytes);
  return whole - bytes <= kPaddingBytesMax ? whole : bytes;
}

}  // namespace

RowSlots::RowSlots(std::size_t words, std::size_t chunk_bytes, std::uint32_t slots_max)
    : words_(words), row_bytes_(RowBytes(words)), slots_max_(slots_max) {
  const std::size_t each = row_bytes_ + sizeof(Info);
  // A power of two, so that slot numbers have no gaps; rounded up, so that large chunks keep huge pages.
  rows_per_chunk_ = static_cast<std::uint32_t>(std::bit_ceil(std::max<std::size_t>(1, chunk_bytes / each)));
  shift_ = static_cast<std::uint32_t>(std::countr_zero(rows_per_chunk_));
  info_offset_ = RoundUp(rows_per_chunk_ * row_bytes_, alignof(Info));
  chunk_bytes_ = RoundUp(info_offset_ + rows_per_chunk_ * sizeof(Info), kPageBytes);
}

RowSlots::~RowSlots() {
  for (const Chunk& chunk : chunks_) UnmapChunk(chunk.memory, chunk_bytes_);
}

void RowSlots::Write(std::uint32_t slot, const std::uint32_t* words) {
  std::memcpy(Row(slot), words, words_ * sizeof(std::uint32_t));
}

bool RowSlots::AddChunk() {
  if (!HasNumbers()) return false;
  chunks_.reserve(chunks_.size() + 1);
  Chunk chunk{.memory = MapChunk(chunk_bytes_), .first_free = 0, .free = rows_per_chunk_};
  chunks_.push_back(chunk);
  const std::uint32_t first = LastChunk();
  for (std::uint32_t i = 0; i < rows_per_chunk_; ++i)
    Of(first + i) = {kNone, i + 1 == rows_per_chunk_ ? kNone : i + 1, 0, false};
  free_ += rows_per_chunk_;
  return true;
}

void RowSlots::DropLastChunk() {
  TARN_CHECK(chunks_.size() > 1 && RowsInLastChunk() == 0, "the last chunk is needed");
  free_ -= rows_per_chunk_;
  UnmapChunk(chunks_.back().memory, chunk_bytes_);
  chunks_.pop_back();
  first_chunk_ = std::min(first_chunk_, static_cast<std::uint32_t>(chunks_.size() - 1));
}

// Uses low chunks first, so that the last ones become empty.
std::uint32_t RowSlots::Take(std::uint32_t place, std::uint32_t number) {
  TARN_CHECK(free_ != 0, "no slot was reserved for a row");
  while (chunks_[first_chunk_].free == 0) ++first_chunk_;
  Chunk& chunk = chunks_[first_chunk_];
  const std::uint32_t slot = (first_chunk_ << shift_) | chunk.first_free;
  Info& info = Of(slot);
  chunk.first_free = info.number;
  --chunk.free;
  --free_;
  info = {place, number, 0, false};
  return slot;
}

void RowSlots::Free(std::uint32_t slot) {
  const std::uint32_t index = slot >> shift_;
  Chunk& chunk = chunks_[index];
  Of(slot) = {kNone, chunk.first_free, 0, false};
  chunk.first_free = IndexOf(slot);
  ++chunk.free;
  ++free_;
  first_chunk_ = std::min(first_chunk_, index);
}

std::uint32_t RowSlots::After(std::uint32_t slot) const {
  if (IndexOf(slot) + 1 < rows_per_chunk_) return slot + 1;
  const std::uint32_t chunk = (slot >> shift_) + 1;
  return chunk == chunks_.size() ? 0 : chunk << shift_;
}

}  // namespace tarn::server

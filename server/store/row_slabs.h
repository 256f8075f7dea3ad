// The rows of one sparse partition: numbered 0, 1, 2, ... and never moved. Slabs come from the shard's arena; the
// first holds a few rows, the next ones double up to about 64 KiB, so that a small partition costs bytes, not pages.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/store/arena.h"

namespace tarn::server {

// Where rows lie, by number; valid until one is added.
struct RowPlaces {
  // Of the slab with a row: where row 0 would lie if the slab went back to it. One for every 2^first_log2 rows before
  // row 2^full_log2, one for every 2^full_log2 from there on.
  const std::uintptr_t* origins = nullptr;
  std::uint32_t row_bytes = 0;
  std::uint32_t first_log2 = 0;
  std::uint32_t full_log2 = 0;

  [[gnu::always_inline]] float* Row(std::uint32_t row) const {
    const std::uint32_t full = (1u << (full_log2 - first_log2)) - 1 + (row >> full_log2);
    const std::uint32_t at = row >> full_log2 == 0 ? row >> first_log2 : full;
    return reinterpret_cast<float*>(origins[at] + std::size_t{row} * row_bytes);
  }
};

class RowSlabs {
 public:
  // A row is `row_floats` floats (at least 1).
  RowSlabs(Arena* arena, std::uint32_t row_floats) : arena_(arena), stride_(Stride(row_floats)) {
    first_log2_ = Log2Rows(kFirstSlabBytes, 3);
    full_log2_ = std::max(first_log2_, Log2Rows(kSlabBytes, 16));
  }

  RowPlaces places() const {
    return {origins_.data(), static_cast<std::uint32_t>(row_bytes()), first_log2_, full_log2_};
  }
  float* Row(std::uint32_t row) const { return places().Row(row); }

  // A new row, uninitialised; its number is the size before.
  float* Add() {
    if (size_ == capacity_) AddSlab();
    return Row(size_++);
  }

  // Returns the memory to the arena. The last call.
  void Release() {
    for (std::uint32_t first = 0; first < capacity_;) {
      const std::uint32_t rows = SlabRows(first);
      arena_->Release(Row(first), rows * row_bytes());
      first += rows;
    }
    size_ = capacity_ = 0;
    origins_.clear();
  }

  std::uint32_t size() const { return size_; }
  // Memory taken for a row.
  std::size_t row_bytes() const { return stride_ * sizeof(float); }

 private:
  static constexpr std::size_t kFirstSlabBytes = 512;
  static constexpr std::size_t kSlabBytes = std::size_t{64} << 10;
  static constexpr std::uint32_t kLineFloats = 16;
  static constexpr std::uint32_t kPaddingFloatsMax = 2;

  // Whole cache lines where that costs next to nothing; packed otherwise.
  static std::uint32_t Stride(std::uint32_t row_floats) {
    const std::uint32_t whole = (row_floats + kLineFloats - 1) / kLineFloats * kLineFloats;
    return whole - row_floats <= kPaddingFloatsMax ? whole : row_floats;
  }
  std::uint32_t Log2Rows(std::size_t bytes, std::uint32_t log2_max) const {
    const std::size_t rows = std::max<std::size_t>(1, bytes / row_bytes());
    return std::min(log2_max, static_cast<std::uint32_t>(std::bit_width(rows)) - 1);
  }
  // Rows of the slab behind `rows` others: as many, at least those of the first slab and at most those of a full one.
  std::uint32_t SlabRows(std::uint32_t rows) const { return std::clamp(rows, 1u << first_log2_, 1u << full_log2_); }
  void AddSlab() {
    const std::uint32_t rows = SlabRows(capacity_);
    const auto slab = reinterpret_cast<std::uintptr_t>(arena_->Allocate(rows * row_bytes()));
    const std::size_t entries = capacity_ >> full_log2_ == 0 ? rows >> first_log2_ : 1;
    origins_.insert(origins_.end(), entries, slab - capacity_ * row_bytes());
    capacity_ += rows;
  }

  Arena* arena_;
  std::uint32_t stride_;
  std::uint32_t first_log2_ = 0;
  std::uint32_t full_log2_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
  std::vector<std::uintptr_t> origins_;
};

}  // namespace tarn::server

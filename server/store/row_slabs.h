// The rows of one sparse fragment, numbered 0, 1, 2, ... and never moved. Slabs are allocated from the shard's arena.
// The first has a few rows; later ones double up to about 64 KiB, so a small partition takes little memory. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/store/arena.h"

namespace tarn::server {

// Addresses of rows by number; valid until a row is added.
struct RowPlaces {
  // For the slab of a row: the address that row 0 would have if the slab extended down to it. One entry for every
  // 2^first_log2 rows before row 2^full_log2, then one for every 2^full_log2 rows.
  const std::uintptr_t* origins = nullptr;
  std::uint32_t row_bytes = 0;
  std::uint32_t first_log2 = 0;
  std::uint32_t full_log2 = 0;

  [[gnu::always_inline]] float* Row(std::uint32_t row) const {
    const std::uint32_t full = (1u << (full_log2 - first_log2)) - 1 + (row >> full_log2);
    const std::uint32_t at = row >> full_log2 == 0 ? row >> first_log2 : full;
    return reinterpret_cast<float*>(origins[at] + std::size_t{row} * row_bytes);  // NOLINT: an origin is no object
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

  // Adds an uninitialised row. Its number is the previous size.
  float* Add() {
    if (size_ == capacity_) AddSlab();
    return Row(size_++);
  }

  // Returns the memory to the arena. Only the destructor may be called after it.
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
  // Memory per row.
  std::size_t row_bytes() const { return stride_ * sizeof(float); }

 private:
  static constexpr std::size_t kFirstSlabBytes = 512;
  static constexpr std::size_t kSlabBytes = std::size_t{64} << 10;
  static constexpr std::uint32_t kLineFloats = 16;
  static constexpr std::uint32_t kPaddingFloatsMax = 2;

  // Rounds up to whole cache lines if that adds at most kPaddingFloatsMax floats.
  static std::uint32_t Stride(std::uint32_t row_floats) {
    const std::uint32_t whole = (row_floats + kLineFloats - 1) / kLineFloats * kLineFloats;
    return whole - row_floats <= kPaddingFloatsMax ? whole : row_floats;
  }
  std::uint32_t Log2Rows(std::size_t bytes, std::uint32_t log2_max) const {
    const std::size_t rows = std::max<std::size_t>(1, bytes / row_bytes());
    return std::min(log2_max, static_cast<std::uint32_t>(std::bit_width(rows)) - 1);
  }
  // Size of the slab that follows `rows` rows: as many again, between the sizes of the first and of a full slab.
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

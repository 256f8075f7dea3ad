// The rows of one sparse partition: numbered 0, 1, 2, ... and never moved. Slabs come from the shard's arena; the
// first holds a few rows, the next ones double up to about 64 KiB, so that a small partition costs bytes, not pages.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/arena.h"

namespace tarn::server {

class RowSlabs {
 public:
  // A row is `row_floats` floats (at least 1).
  RowSlabs(Arena* arena, std::uint32_t row_floats) : arena_(arena), stride_(Stride(row_floats)) {
    first_log2_ = Log2Rows(kFirstSlabBytes, 3);
    full_log2_ = std::max(first_log2_, Log2Rows(kSlabBytes, 16));
  }

  float* Row(std::uint32_t row) const {
    const std::uint32_t doubling = full_log2_ - first_log2_;  // slabs before the first of full size
    if (row >> full_log2_ != 0)
      return slabs_[doubling + (row >> full_log2_)] + std::size_t{row & ((1u << full_log2_) - 1)} * stride_;
    const std::uint32_t slab = static_cast<std::uint32_t>(std::bit_width(row >> first_log2_));
    return slabs_[slab] + std::size_t{row - FirstRowOf(slab)} * stride_;
  }

  // A new row, uninitialised; its number is the size before.
  float* Add() {
    if (size_ == capacity_) AddSlab();
    return Row(size_++);
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
  std::uint32_t FirstRowOf(std::uint32_t slab) const { return slab == 0 ? 0 : 1u << (first_log2_ + slab - 1); }

  void AddSlab() {
    const std::uint32_t slab = static_cast<std::uint32_t>(slabs_.size());
    const std::uint32_t doubling = full_log2_ - first_log2_;
    const std::uint32_t rows_log2 = slab > doubling ? full_log2_ : first_log2_ + (slab == 0 ? 0 : slab - 1);
    slabs_.push_back(static_cast<float*>(arena_->Allocate((std::size_t{1} << rows_log2) * row_bytes())));
    capacity_ += 1u << rows_log2;
  }

  Arena* arena_;
  std::uint32_t stride_;
  std::uint32_t first_log2_ = 0;
  std::uint32_t full_log2_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
  std::vector<float*> slabs_;
};

}  // namespace tarn::server

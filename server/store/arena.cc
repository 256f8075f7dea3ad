#include "server/store/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "server/exhaustion.h"

namespace tarn::server {

namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

constexpr std::size_t RoundUp(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

void* AllocateLarge(std::size_t bytes) {
  const bool huge = bytes >= kHugePageBytes;
  const std::size_t alignment = huge ? kHugePageBytes : Arena::kAlignment;
  void* memory = std::aligned_alloc(alignment, RoundUp(std::max<std::size_t>(bytes, 1), alignment));
  if (memory == nullptr) throw OutOfMemory(fmt::format("{} bytes", bytes));
  // May fail: everything works without huge pages, but slower.
  if (huge) (void)madvise(memory, RoundUp(bytes, kHugePageBytes), MADV_HUGEPAGE);
  return memory;
}

Arena::~Arena() {
  for (void* block : blocks_) std::free(block);
}

std::byte* Arena::NewBlock(std::size_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  void* block = AllocateLarge(bytes);
  blocks_.push_back(block);
  reserved_bytes_ += bytes;
  return static_cast<std::byte*>(block);
}

void* Arena::Allocate(std::size_t bytes) {
  bytes = RoundUp(std::max<std::size_t>(bytes, 1), kAlignment);
  if (const auto released = released_.find(bytes); released != released_.end() && !released->second.empty()) {
    void* piece = released->second.back();
    released->second.pop_back();
    return piece;
  }
  if (bytes > left_) {
    // A large allocation gets its own block, so that the current one stays in use.
    if (bytes * 4 > next_block_bytes_) return NewBlock(bytes);
    next_ = NewBlock(next_block_bytes_);
    left_ = next_block_bytes_;
    next_block_bytes_ = std::min(next_block_bytes_ * 2, kBlockBytesMax);
  }
  void* result = next_;
  next_ += bytes;
  left_ -= bytes;
  return result;
}

void Arena::Release(void* piece, std::size_t bytes) {
  released_[RoundUp(std::max<std::size_t>(bytes, 1), kAlignment)].push_back(piece);
}

}  // namespace tarn::server

// Allocates runs of 4 KiB pages, first fit, from regions that request huge pages. For objects that are freed often and
// accessed in random order, such as the segments of an index: with small pages each access would cost a page table
// walk. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarn::server {

class PagePool {
 public:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kRunBytesMax = std::size_t{256} << 10;

  PagePool() = default;
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // At least `bytes` bytes (at most kRunBytesMax), uninitialised, aligned to a page; throws OutOfMemory.
  void* Allocate(std::size_t bytes);
  // Frees a run that was allocated with the same `bytes`.
  void Free(void* run, std::size_t bytes);

  // Memory allocated from the system.
  std::size_t reserved_bytes() const { return regions_.size() * kRegionBytes; }

 private:
  static constexpr std::size_t kRegionBytes = std::size_t{2} << 20;
  static constexpr std::size_t kRegionPages = kRegionBytes / kPageBytes;
  struct Region {
    std::byte* memory = nullptr;
    std::size_t free = kRegionPages;
    std::array<bool, kRegionPages> taken = {};
  };

  std::byte* TakeFrom(Region* region, std::size_t pages);

  std::vector<Region> regions_;  // in order of address
  std::size_t hint_ = 0;         // index of a region before which all are probably full
};

}  // namespace tarn::server

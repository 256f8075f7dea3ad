#include "server/tier/chunk_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>

#include "server/exhaustion.h"

namespace tarn::server {

namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::byte* Map(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw OutOfMemory(fmt::format("{} bytes", bytes));
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::byte* MapChunk(std::size_t bytes) {
  if (bytes < kHugePageBytes) return Map(bytes);
  // mmap aligns only to small pages: maps one huge page more, and unmaps what lies before and after the aligned part.
  std::byte* whole = Map(bytes + kHugePageBytes);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(whole) % kHugePageBytes;
  if (before != 0) ::munmap(whole, before);
  if (before != kHugePageBytes) ::munmap(whole + before + bytes, kHugePageBytes - before);
  (void)::madvise(whole + before, bytes, MADV_HUGEPAGE);  // may fail
  return whole + before;
}

void UnmapChunk(std::byte* chunk, std::size_t bytes) { ::munmap(chunk, bytes); }

}  // namespace tarn::server

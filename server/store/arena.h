// Memory of one shard's rows: many small, aligned pieces. A released piece is reused for pieces of the same size; all
// memory is returned to the system when the arena is destroyed. Large blocks use huge pages if available. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace tarn::server {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kBlockBytesMax = std::size_t{8} << 20;

  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `bytes` uninitialised bytes, aligned to kAlignment; throws OutOfMemory. Block sizes double from a small one, so an
  // arena with few pieces takes little memory.
  void* Allocate(std::size_t bytes);

  // Frees a piece that was allocated with the same `bytes`.
  void Release(void* piece, std::size_t bytes);

  // Memory allocated from the system.
  std::size_t reserved_bytes() const { return reserved_bytes_; }

 private:
  std::byte* NewBlock(std::size_t bytes);

  std::vector<void*> blocks_;
  std::unordered_map<std::size_t, std::vector<void*>> released_;  // by rounded size
  std::byte* next_ = nullptr;  // the unused rest of the current block: address and bytes
  std::size_t left_ = 0;
  std::size_t next_block_bytes_ = std::size_t{16} << 10;
  std::size_t reserved_bytes_ = 0;
};

// Allocates at least `bytes` bytes, aligned to 64. Allocations of 2 MiB and more are aligned to huge pages and request
// them. Free with std::free. Throws OutOfMemory (server/exhaustion.h).
void* AllocateLarge(std::size_t bytes);

}  // namespace tarn::server

// Memory of one shard's rows: many small, aligned pieces. A piece that is released serves later pieces of the same
// size; the system gets the memory back with the end of the arena. Large blocks ask for huge pages. Not thread-safe.
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

  // `bytes` uninitialised bytes, aligned to kAlignment; throws OutOfMemory. Blocks start small and double, so that an
  // arena that holds little costs little.
  void* Allocate(std::size_t bytes);

  // Takes a piece back that was allocated with the same `bytes`.
  void Release(void* piece, std::size_t bytes);

  // What the arena has taken from the system.
  std::size_t reserved_bytes() const { return reserved_bytes_; }

 private:
  std::byte* NewBlock(std::size_t bytes);

  std::vector<void*> blocks_;
  std::unordered_map<std::size_t, std::vector<void*>> released_;  // by rounded size
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::size_t next_block_bytes_ = std::size_t{16} << 10;
  std::size_t reserved_bytes_ = 0;
};

// Memory of at least `bytes` bytes, aligned to 64 and, from 2 MiB on, to huge pages, which are then asked for.
// Free with std::free. Throws OutOfMemory (server/exhaustion.h).
void* AllocateLarge(std::size_t bytes);

}  // namespace tarn::server

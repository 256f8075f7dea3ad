// A stack allocator for the arrays of a step: arrays are released in reverse order. The memory is reused by the next
// step, so that nothing is allocated after the first one.
//
//   Workspace memory(stream);
//   float* kept = memory.Get<float>(n);
//   const Workspace::Mark mark = memory.mark();
//   float* temporary = memory.Get<float>(n);
//   memory.Release(mark);                   // `temporary` must not be used any more
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "kernels/stream.h"

namespace tarn::worker {

// One thread at a time.
class Workspace {
 public:
  // Uses the memory of a GPU, or of this process if `stream` is null. The stream outlives this object.
  explicit Workspace(kernels::Stream* stream = nullptr) : stream_(stream) {}

  // Allocates n uninitialised items, aligned to 64 bytes (256 on a GPU). Returns null if GPU memory is exhausted; then
  // failed() is true until Reset, and further calls return null and only count the bytes needed.
  template <typename T>
  T* Get(std::size_t n) {
    return static_cast<T*>(GetBytes(n * sizeof(T)));
  }

  struct Mark {
    std::size_t chunk = 0, chunk_used = 0, used = 0;
  };
  Mark mark() const { return {chunk_, chunk_used_, used_}; }
  // Releases all arrays allocated since `mark`.
  void Release(const Mark& mark);

  // Releases all arrays, clears a failure, and merges the memory into one chunk.
  void Reset();

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  std::size_t held_bytes() const;
  // The maximum bytes in use since Reset, including failed allocations.
  std::size_t peak_bytes() const { return peak_; }

 private:
  struct Chunk {
    Buffer host;
    kernels::DeviceBuffer device;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  void* GetBytes(std::size_t bytes);
  bool AddChunk(std::size_t bytes);

  kernels::Stream* stream_;
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0, chunk_used_ = 0;  // position of the next array
  std::size_t used_ = 0, peak_ = 0;
  std::string failure_;
};

}  // namespace tarn::worker

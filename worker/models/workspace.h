// Memory for the arrays of a step: handed out one behind the other, taken back from the last one on. It stays for the
// next step, so that nothing is allocated once the first one is over.
//
//   Workspace memory(stream);
//   float* kept = memory.Get<float>(n);
//   const Workspace::Mark mark = memory.mark();
//   float* passing = memory.Get<float>(n);
//   memory.Release(mark);                   // `passing` is free again
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
  // Of a GPU's memory, or of this process's if `stream` is null. The stream outlives it.
  explicit Workspace(kernels::Stream* stream = nullptr) : stream_(stream) {}

  // n items, uninitialised, at a multiple of 64 bytes (of 256 on a GPU). Null if the GPU has no more memory: then
  // failed(), and so is every further call, which only counts what it would have taken.
  template <typename T>
  T* Get(std::size_t n) {
    return static_cast<T*>(GetBytes(n * sizeof(T)));
  }

  struct Mark {
    std::size_t chunk = 0, chunk_used = 0, used = 0;
  };
  Mark mark() const { return {chunk_, chunk_used_, used_}; }
  // Takes back what was handed out since.
  void Release(const Mark& mark);

  // Takes back everything, forgets a failure, and joins what came in pieces.
  void Reset();

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  std::size_t held_bytes() const;
  // The most that was handed out at a time since Reset, as if there had been enough.
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
  std::size_t chunk_ = 0, chunk_used_ = 0;  // where the next array comes from
  std::size_t used_ = 0, peak_ = 0;
  std::string failure_;
};

}  // namespace tarn::worker

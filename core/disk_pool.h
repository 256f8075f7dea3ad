// Threads for work that waits for a disk, so that whoever must be heard by others does not: Boost.Asio's thread pool,
// kept out of headers. Work of one strand is done one piece after the other, in the order in which it came; strands do
// not wait for each other while there are as many threads as strands.
//
//   DiskPool pool("disk", 2);
//   DiskPool::Strand state(&pool);
//   state.Post([=] { WriteFileAtomic(path, bytes); });
//
// Any thread may post. A pool outlives its strands; what was posted is done before either goes.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tarn {

class DiskPool {
 public:
  using Job = std::move_only_function<void()>;

  // name: of the threads, 15 letters at most.
  DiskPool(std::string name, unsigned threads);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  class Strand {
   public:
    explicit Strand(DiskPool* pool);
    ~Strand();
    Strand(const Strand&) = delete;
    Strand& operator=(const Strand&) = delete;

    void Post(Job job);
    // Waits until all that was posted before is done. Not from a job of the pool.
    void Drain();

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn

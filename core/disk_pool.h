// Threads for work that may take long, such as a write to a disk that stalls, so that no thread that answers heartbeats
// or owns rows waits for it. Wraps Boost.Asio's executor, which stays out of headers.
//
// A strand runs its jobs one after the other, in the order of the posts. A pool has at least as many threads as
// strands, so no strand waits for another.
//
//   DiskPool pool;
//   DiskPool::Strand state(&pool, "state");
//   state.Post([=] { WriteFileAtomic(path, bytes); });
//
// Any thread may post. A pool outlives its strands. Both finish what was posted before they are destroyed.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace tarn {

class DiskPool {
 public:
  using Job = std::move_only_function<void()>;

  DiskPool();
  // With `threads` threads from the beginning, for Post. name: of the threads while they run such jobs, 15 letters at
  // most. Throws std::system_error if a thread cannot be started.
  DiskPool(std::string name, unsigned threads);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // Runs the job on any thread of the pool. Jobs begin in the order of the posts.
  void Post(Job job);

  class Strand {
   public:
    // name: of the thread that runs the strand's jobs, 15 letters at most. Starts a thread if the pool has fewer than
    // strands, and throws std::system_error if it cannot be started.
    Strand(DiskPool* pool, std::string name);
    ~Strand();
    Strand(const Strand&) = delete;
    Strand& operator=(const Strand&) = delete;

    void Post(Job job);
    // Returns false and drops the job if `waiting_max` jobs or more have not begun yet.
    [[nodiscard]] bool TryPost(std::size_t waiting_max, Job job);
    // Waits until every job that was posted before has ended. Allocates nothing. Must not be called by a job of the
    // strand.
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

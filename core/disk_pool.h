// Threads for work that may take long, such as a write to a disk that stalls, so that no thread that answers heartbeats
// or owns rows waits for it. Wraps Boost.Asio's executor, which stays out of headers.
//
// A strand runs its jobs one after the other, in the order of the posts, on a thread that is its own until it is
// destroyed: no strand waits for another. The threads do not take turns at all jobs, because malloc keeps for each
// thread what its jobs have freed, so that each would hold on to as much memory as the largest job of all takes.
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
  // With `threads` threads for Post. name: of these threads, 15 letters at most. Throws std::system_error if a thread
  // cannot be started.
  DiskPool(std::string name, unsigned threads);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // Runs the job on any of the threads for it, which the pool must have. Jobs begin in the order of the posts.
  void Post(Job job);

  class Strand {
   public:
    // name: of the strand's thread, 15 letters at most. That is the thread of a strand that was destroyed, or a new
    // one; throws std::system_error if it cannot be started.
    Strand(DiskPool* pool, const std::string& name);
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

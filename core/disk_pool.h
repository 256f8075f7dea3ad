// Threads for operations that may take long, such as disk writes, so that threads that answer heartbeats or own rows
// never wait for them. Wraps Boost.Asio's executor, which no header includes.
//
// A strand runs its jobs one after the other, in the order of the posts, on a separate thread, so no strand waits for
// another. Threads are not shared by strands, because malloc keeps freed memory per thread: every thread would keep as
// much memory as the largest job of all strands needs.
//
//   DiskPool pool;
//   DiskPool::Strand state(&pool, "state");
//   state.Post([=] { WriteFileAtomic(path, bytes); });
//
// Any thread may post. A pool outlives its strands. The destructors of both wait until all posted jobs have run.
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
  // Starts `threads` threads for Post, all with this name of at most 15 letters. Throws std::system_error if a thread
  // cannot be started.
  DiskPool(std::string name, unsigned threads);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // Runs the job on one of the threads that the constructor started, of which there must be at least one. Jobs begin
  // in the order of the posts.
  void Post(Job job);

  class Strand {
   public:
    // `name`: of the strand's thread, at most 15 letters. Reuses the thread of a destroyed strand, or starts one;
    // throws std::system_error if that fails.
    Strand(DiskPool* pool, const std::string& name);
    ~Strand();
    Strand(const Strand&) = delete;
    Strand& operator=(const Strand&) = delete;

    void Post(Job job);
    // Returns false and drops the job if `waiting_max` or more jobs have not begun.
    [[nodiscard]] bool TryPost(std::size_t waiting_max, Job job);
    // Waits until all jobs posted before have ended. Does not allocate. Must not be called by a job of the strand.
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

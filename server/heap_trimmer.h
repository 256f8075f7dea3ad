// Gives the holes of the heap back to the system beside the shards' work: a walk over the heap takes up to many
// milliseconds, for which no push should wait. (A shard that allocates in the arena that the walk is at does wait for
// that arena.) Any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tarn::server {

class HeapTrimmer {
 public:
  // `trim` does it, on a thread of its own: malloc_trim, and what is to be told of it.
  explicit HeapTrimmer(std::function<void()> trim);
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

  // Has it done soon. One at a time: nothing while another is under way.
  void Begin();

 private:
  void Run();

  std::function<void()> trim_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool wanted_ = false, closing_ = false;
  std::thread thread_;
};

}  // namespace tarn::server

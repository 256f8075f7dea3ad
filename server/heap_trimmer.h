// Returns free memory of the heap to the system on a separate strand, because trimming can take many milliseconds. (A
// shard still waits if it allocates from the malloc arena that is being trimmed.) Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "core/disk_pool.h"

namespace tarn::server {

class HeapTrimmer {
 public:
  // `trim` calls malloc_trim and reports the result. It runs on a strand of the pool; the pool outlives the trimmer.
  HeapTrimmer(DiskPool* pool, std::function<void()> trim) : trim_(std::move(trim)), strand_(pool, "heap-trim") {}

  // Starts a trim. Does nothing while one is queued or running.
  void Begin() {
    if (trimming_.exchange(true)) return;
    strand_.Post([this] {
      trim_();
      trimming_ = false;
    });
  }

 private:
  std::function<void()> trim_;
  std::atomic<bool> trimming_ = false;  // a trim is queued or running
  DiskPool::Strand strand_;
};

}  // namespace tarn::server

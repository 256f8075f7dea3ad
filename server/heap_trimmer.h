// Gives the holes of the heap back to the system beside the shards' work: a walk over the heap takes up to many
// milliseconds, for which no push should wait. (A shard that allocates in the arena that the walk is at does wait for
// that arena.) Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "core/disk_pool.h"

namespace tarn::server {

class HeapTrimmer {
 public:
  // `trim` calls malloc_trim and reports what it freed; it runs on a thread of the pool, which outlives the trimmer.
  HeapTrimmer(DiskPool* pool, std::function<void()> trim) : trim_(std::move(trim)), strand_(pool, "heap-trim") {}

  // Starts a trim. Does nothing while one waits or runs.
  void Begin() {
    if (trims_.exchange(true)) return;
    strand_.Post([this] {
      trim_();
      trims_ = false;
    });
  }

 private:
  std::function<void()> trim_;
  std::atomic<bool> trims_ = false;
  DiskPool::Strand strand_;
};

}  // namespace tarn::server

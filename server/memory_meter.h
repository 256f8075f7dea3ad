// Divides the memory budget of one server among its shards. Each shard reports its own bytes. The rest of the process
// (code, threads, network buffers, free heap memory) is measured and subtracted from all shares, so that the process
// stays within the budget. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "core/types.h"

namespace tarn::server {

class MemoryMeter {
 public:
  explicit MemoryMeter(std::size_t shards);

  // Reports that shard `index` counts `bytes` and the process has `resident_bytes`. Returns the shard's share of the
  // budget, in bytes. All shards have equal shares.
  std::size_t Share(std::size_t index, std::size_t bytes, std::size_t resident_bytes, std::size_t budget);

  // Whether the heap should be trimmed now (malloc_trim), because uncounted memory is so large that rows would have to
  // be evicted. After it has returned true, it returns false for one second. Small gains reported by Trimmed double
  // this time, up to four seconds.
  bool TrimIsDue(std::size_t resident_bytes, std::size_t budget, TimeUs now);
  // Reports the resident bytes before and after a trim.
  void Trimmed(std::size_t resident_before, std::size_t resident_after);

 private:
  std::size_t UncountedBytes(std::size_t resident_bytes) const;

  std::vector<std::atomic<std::size_t>> counted_;
  std::atomic<TimeUs> next_trim_{0}, trim_period_us_;
  std::atomic<std::size_t> budget_{0};  // of the last call of TrimIsDue that found too much uncounted memory
};

// Resident memory of this process (RSS); 0 if unknown.
std::size_t ResidentBytes();

}  // namespace tarn::server

// How the shards of one server share its memory budget. Each says what it counts; what the process takes beyond that
// (its code, its threads, the network's buffers, holes in the heap) is measured and taken off everybody's share, so
// that the whole stays within the budget. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "core/types.h"

namespace tarn::server {

class MemoryMeter {
 public:
  explicit MemoryMeter(std::size_t shards);

  // Shard `index` counts `bytes` now, and the process takes `resident_bytes`. Returns what the shard may hold of a
  // budget.
  std::size_t Share(std::size_t index, std::size_t bytes, std::size_t resident_bytes, std::size_t budget);

  // Whether the heap should be asked now to give back its holes (malloc_trim): so much is taken that nobody counts that
  // rows would have to go for it. Says so to one caller, and then not for a while: a second, and twice as long after
  // each time that little was won, as Trimmed is told.
  bool TrimIsDue(std::size_t resident_bytes, std::size_t budget, TimeUs now);
  void Trimmed(std::size_t resident_before, std::size_t resident_after);

 private:
  std::size_t Besides(std::size_t resident_bytes) const;

  std::vector<std::atomic<std::size_t>> counted_;
  std::atomic<TimeUs> next_trim_{0}, trim_period_us_;
  std::atomic<std::size_t> budget_{0};  // that a trim was due for
};

// What this process takes of the machine's memory (RSS); 0 if the system does not say.
std::size_t ResidentBytes();

}  // namespace tarn::server

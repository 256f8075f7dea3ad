// How the shards of one server share its memory budget. Each says what it counts; what the process takes beyond that
// (its code, its threads, the network's buffers, holes in the heap) is measured and taken off everybody's share, so
// that the whole stays within the budget. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace tarn::server {

class MemoryMeter {
 public:
  explicit MemoryMeter(std::size_t shards) : counted_(shards) {}

  // Shard `index` counts `bytes` now, and the process takes `resident_bytes`. Returns what the shard may hold of a
  // budget.
  std::size_t Share(std::size_t index, std::size_t bytes, std::size_t resident_bytes, std::size_t budget);

 private:
  std::vector<std::atomic<std::size_t>> counted_;
};

// What this process takes of the machine's memory (RSS); 0 if the system does not say.
std::size_t ResidentBytes();

}  // namespace tarn::server

// The memory of one shard under the budget of its job: the shard's share, trims of the heap, and a warning when the
// process stays above the budget. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"
#include "server/heap_trimmer.h"
#include "server/memory_meter.h"

namespace tarn::server {

class ShardMemory {
 public:
  // `index` of the shard in its server. Meter and trimmer are the server's and outlive it.
  ShardMemory(ShardId shard, std::uint32_t index, MemoryMeter* meter, HeapTrimmer* trimmer)
      : shard_(shard), index_(index), meter_(meter), trimmer_(trimmer) {}

  // Sets the budget of the server in bytes, and returns the shard's first share of it. `resident`: of the process.
  std::size_t Begin(std::size_t budget, std::size_t resident);
  // Whether Share is due. Never without a budget.
  bool IsDue(TimeUs now) const { return budget_ != 0 && now >= next_; }

  struct Use {
    std::size_t bytes = 0;                       // of rows and messages
    std::size_t checkpoint_bytes = 0;            // of a checkpoint that is being written
    std::size_t resident = 0;                    // of the process
    std::uint64_t rows = 0, rows_in_memory = 0;  // of the shard
  };
  // Returns the bytes that the shard's rows and messages may take, and sets when the next call is due. Starts a trim of
  // the heap if one is due. Logs a warning, at most once a minute, while the process exceeds the budget by a tenth
  // although few rows are in memory.
  std::size_t Share(const Use& use, TimeUs now);

  // Schedules a trim of the heap. Call it when the writer of a checkpoint has freed its memory, which the heap keeps
  // otherwise.
  void TrimSoon(TimeUs now);
  // Starts the scheduled trim if it is due.
  void TrimIfDue(TimeUs now);

 private:
  void WarnIfAbove(const Use& use, TimeUs now);

  ShardId shard_;
  std::uint32_t index_;
  MemoryMeter* meter_;
  HeapTrimmer* trimmer_;
  std::size_t budget_ = 0;  // 0: none
  TimeUs next_ = 0, next_warning_ = 0;
  TimeUs trim_at_ = 0;  // 0: no trim is scheduled
};

}  // namespace tarn::server

// The log lines of a shard's loop: parts of checkpoints, a log disk that does not respond, and gradients that are not
// finite. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "core/disk_pool.h"
#include "core/message.h"
#include "core/types.h"
#include "server/log_watch.h"
#include "server/store/store.h"

namespace tarn::server {

class ShardNotes {
 public:
  // Warnings of a disk are written on the strand, because the file of this process's log may be on the same disk. The
  // strand outlives the notes.
  ShardNotes(ShardId shard, DiskPool::Strand* strand) : shard_(shard), strand_(strand) {}

  void OnCheckpointPart(const CheckpointPart& part) const;
  // Call it in every turn of the shard's loop, with the arguments of LogWatch::Note.
  void WatchLog(TimeUs now, bool durable, LogSequence synced);
  // `skipped`: gradients that were not finite, so far. Whether LogNotFinite is due: there are more, and it was not
  // called in the last kWaitNotePeriodUs. If so, the call must follow.
  bool NotFiniteIsDue(TimeUs now, std::uint64_t skipped);
  void LogNotFinite(std::span<const NotFiniteRows> tables) const;

 private:
  ShardId shard_;
  DiskPool::Strand* strand_;
  LogWatch log_watch_;
  std::uint64_t skipped_ = 0;  // when they were last logged
  TimeUs next_skipped_ = 0;
};

}  // namespace tarn::server

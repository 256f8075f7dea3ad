// Writes the log lines of a shard's loop: parts of checkpoints, a log disk that does not respond, and gradients that
// are not finite. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "core/disk_pool.h"
#include "core/message.h"
#include "core/types.h"
#include "server/log_watch.h"
#include "server/store/store.h"

namespace tarn::server {

class ShardDiagnostics {
 public:
  // Warnings about a stalled disk are written on the strand, because the log file of this process may be on the same
  // disk. The strand must outlive this object.
  ShardDiagnostics(ShardId shard, DiskPool::Strand* strand) : shard_(shard), strand_(strand) {}

  // Logs the result of the shard's part of a checkpoint: written, abandoned or failed.
  void OnCheckpointPart(const CheckpointPart& part) const;
  // Call it in every turn of the shard's loop, with the arguments of LogWatch::Note.
  void WatchLog(TimeUs now, bool all_durable, LogSequence synced);
  // Whether the caller must call LogNotFinite now: `skipped`, the number of gradients so far that were not finite, has
  // changed since the last call that returned true, and that call is at least kWaitNotePeriodUs old.
  bool NotFiniteIsDue(TimeUs now, std::uint64_t skipped);
  // Logs a warning for each table in `tables`.
  void LogNotFinite(std::span<const NotFiniteRows> tables) const;

 private:
  ShardId shard_;
  DiskPool::Strand* strand_;
  LogWatch log_watch_;
  std::uint64_t skipped_when_logged_ = 0;
  TimeUs next_not_finite_log_ = 0;
};

}  // namespace tarn::server

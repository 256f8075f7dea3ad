#include "server/shard_notes.h"

#include <fmt/format.h>

#include "core/log.h"
#include "server/loop.h"

namespace tarn::server {
namespace {

constexpr std::size_t kWaitingMax = 64;  // warnings that wait for the strand; further ones are dropped

}  // namespace

void ShardNotes::OnCheckpointPart(const CheckpointPart& part) const {
  if (part.code == ErrorCode::kCancelled) {
    LogInfo("shard {}: checkpoint {}: {}", shard_.value, part.id.value, part.message);
    return;
  }
  if (part.code != ErrorCode::kOk) {
    LogError("shard {}: checkpoint {}: {}", shard_.value, part.id.value, part.message);
    return;
  }
  std::uint64_t bytes = 0, rows = 0;
  for (const CheckpointFile& file : part.files) bytes += file.bytes, rows += file.rows;
  LogInfo("shard {}: checkpoint {}: {} rows, {} bytes", shard_.value, part.id.value, rows, bytes);
}

// Rule L1: callers that wait for acknowledgements then wait for the disk, and only this process can report it.
void ShardNotes::WatchLog(TimeUs now, bool durable, LogSequence synced) {
  const auto silent = log_watch_.Note(now, durable, synced);
  if (!silent) return;
  (void)strand_->TryPost(
      kWaitingMax,
      [text = fmt::format("shard {}: the disk of its log has not answered for {:.0f} s, so nothing is acknowledged",
                          shard_.value, static_cast<double>(*silent) * 1e-6)] {
        LogAndPrint(LogLevel::kWarning, kProgram, text);
      });
}

bool ShardNotes::NotFiniteIsDue(TimeUs now, std::uint64_t skipped) {
  if (skipped == skipped_ || now < next_skipped_) return false;
  skipped_ = skipped;
  next_skipped_ = now + kWaitNotePeriodUs;
  return true;
}

void ShardNotes::LogNotFinite(std::span<const NotFiniteRows> tables) const {
  for (const NotFiniteRows& of : tables)
    LogWarning(
        "shard {}: table '{}': {} gradients with infinite or NaN values so far, the last of key {}; their rows were "
        "left as they were",
        shard_.value, of.table, of.rows, of.key);
}

}  // namespace tarn::server

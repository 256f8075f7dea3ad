#include "server/shard_diagnostics.h"

#include <fmt/format.h>

#include "core/log.h"
#include "server/loop.h"

namespace tarn::server {
namespace {

constexpr std::size_t kWaitingMax = 64;  // warnings that wait for the strand; further ones are dropped

}  // namespace

void ShardDiagnostics::OnCheckpointPart(const CheckpointPart& part) const {
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
  LogInfo("shard {}: checkpoint {}: wrote {} rows, {} bytes", shard_.value, part.id.value, rows, bytes);
}

// Without the log's disk nothing is acknowledged (rule L1), and only this process can report the reason.
void ShardDiagnostics::WatchLog(TimeUs now, bool all_durable, LogSequence synced) {
  const auto silent = log_watch_.Note(now, all_durable, synced);
  if (!silent) return;
  (void)strand_->TryPost(
      kWaitingMax,
      [text = fmt::format("shard {}: the disk of its log has not answered for {:.0f} s, so nothing is acknowledged",
                          shard_.value, static_cast<double>(*silent) * 1e-6)] {
        LogAndPrint(LogLevel::kWarning, kProgram, text);
      });
}

bool ShardDiagnostics::NotFiniteIsDue(TimeUs now, std::uint64_t skipped) {
  if (skipped == skipped_when_logged_ || now < next_not_finite_log_) return false;
  skipped_when_logged_ = skipped;
  next_not_finite_log_ = now + kWaitNotePeriodUs;
  return true;
}

void ShardDiagnostics::LogNotFinite(std::span<const NotFiniteRows> tables) const {
  for (const NotFiniteRows& skipped : tables)
    LogWarning(
        "shard {}: table '{}': {} gradients with infinite or NaN values so far, the last for key {}; they left "
        "their rows unchanged",
        shard_.value, skipped.table, skipped.rows, skipped.key);
}

}  // namespace tarn::server

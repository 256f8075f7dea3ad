#include "server/shard_memory.h"

#include <algorithm>

#include "core/byte_size.h"
#include "core/log.h"

namespace tarn::server {
namespace {

// Period of memory checks, normally and during a checkpoint, when memory changes fast.
constexpr TimeUs kPeriodUs = 100'000, kPeriodWritingUs = 20'000;
constexpr TimeUs kWarningPeriodUs = 60'000'000;
// Few rows are in memory if they are at most 1 / kFewRows of all rows.
constexpr std::uint64_t kFewRows = 16;
constexpr TimeUs kTrimDelayUs = 2'000'000;

}  // namespace

std::size_t ShardMemory::Begin(std::size_t budget, std::size_t resident) {
  budget_ = budget;
  return meter_->Share(index_, 0, resident, budget);
}

std::size_t ShardMemory::Share(const Use& use, TimeUs now) {
  next_ = now + (use.checkpoint_bytes == 0 ? kPeriodUs : kPeriodWritingUs);
  const std::size_t share = meter_->Share(index_, use.bytes + use.checkpoint_bytes, use.resident, budget_);
  if (meter_->TrimIsDue(use.resident, budget_, now)) trimmer_->Begin();
  WarnIfAbove(use, now);
  return share - std::min(share, use.checkpoint_bytes);
}

// Does not warn while more rows are in memory, because evicting them still helps.
void ShardMemory::WarnIfAbove(const Use& use, TimeUs now) {
  if (use.resident <= budget_ / 10 * 11 || now < next_warning_ || use.rows_in_memory * kFewRows > use.rows) return;
  next_warning_ = now + kWarningPeriodUs;
  LogWarning(
      "shard {}: the process takes {} MiB, more than storage.memory = {}: this shard uses {} MiB for the index and "
      "other data of its {} rows, with {} rows in memory; use a larger storage.memory, more servers, or fewer rows "
      "(admission, expiry)",
      shard_.value, use.resident >> 20, ToByteSize(budget_), use.bytes >> 20, use.rows, use.rows_in_memory);
}

void ShardMemory::TrimSoon(TimeUs now) { trim_at_ = now + kTrimDelayUs; }

void ShardMemory::TrimIfDue(TimeUs now) {
  if (trim_at_ == 0 || now < trim_at_) return;
  trim_at_ = 0;
  trimmer_->Begin();
}

}  // namespace tarn::server

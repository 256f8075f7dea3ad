#include "server/shard_memory.h"

#include <algorithm>

#include "core/byte_size.h"
#include "core/log.h"

namespace tarn::server {
namespace {

// Period of memory checks, normally and during a checkpoint, when memory changes fast.
constexpr TimeUs kPeriodUs = 100'000, kPeriodWritingUs = 20'000;
constexpr TimeUs kWarningPeriodUs = 60'000'000;
// Rows in memory are few if they are one in so many.
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

// With more rows in memory there is something left to evict.
void ShardMemory::WarnIfAbove(const Use& use, TimeUs now) {
  if (use.resident <= budget_ / 10 * 11 || now < next_warning_ || use.rows_in_memory * kFewRows > use.rows) return;
  next_warning_ = now + kWarningPeriodUs;
  LogWarning(
      "shard {}: the process takes {} MiB, more than storage.memory = {}: {} MiB of this shard are the index of "
      "its {} rows and what else it keeps of them, with {} rows in memory; expected a larger storage.memory, "
      "more servers, or fewer rows (admission, expiry)",
      shard_.value, use.resident >> 20, ToByteSize(budget_), use.bytes >> 20, use.rows, use.rows_in_memory);
}

void ShardMemory::TrimSoon(TimeUs now) { trim_at_ = now + kTrimDelayUs; }

void ShardMemory::TrimIfDue(TimeUs now) {
  if (trim_at_ == 0 || now < trim_at_) return;
  trim_at_ = 0;
  trimmer_->Begin();
}

}  // namespace tarn::server

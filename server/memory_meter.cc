#include "server/memory_meter.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tarn::server {

namespace {

// Lower bound of the memory that no shard counts. The measured difference may be too small, because shards also count
// memory that they have not touched yet, which is not resident.
constexpr std::size_t kUncountedBytesMin = std::size_t{24} << 20;
// The shards together get at least 1 / kSharesMinPart of the budget.
constexpr std::size_t kSharesMinPart = 8;
// A trim is due when more than 1 / kTrimPart of the budget is uncounted, and the period has passed.
constexpr std::size_t kTrimPart = 16;
constexpr TimeUs kTrimPeriodUs = 1'000'000, kTrimPeriodUsMax = 4'000'000;
// A gain below 1 / kSmallGainPart of the budget is small.
constexpr std::size_t kSmallGainPart = 64;

}  // namespace

MemoryMeter::MemoryMeter(std::size_t shards) : counted_(shards), trim_period_us_(kTrimPeriodUs) {}

// Memory of the process that no shard counts, at least kUncountedBytesMin.
std::size_t MemoryMeter::UncountedBytes(std::size_t resident_bytes) const {
  std::size_t all = 0;
  for (const auto& counted : counted_) all += counted.load(std::memory_order_relaxed);
  return std::max(kUncountedBytesMin, resident_bytes - std::min(resident_bytes, all));
}

bool MemoryMeter::TrimIsDue(std::size_t resident_bytes, std::size_t budget, TimeUs now) {
  if (UncountedBytes(resident_bytes) <= kUncountedBytesMin + budget / kTrimPart) return false;
  budget_.store(budget, std::memory_order_relaxed);
  TimeUs next = next_trim_.load(std::memory_order_relaxed);
  return now >= next && next_trim_.compare_exchange_strong(next, now + trim_period_us_, std::memory_order_relaxed);
}

void MemoryMeter::Trimmed(std::size_t resident_before, std::size_t resident_after) {
  const std::size_t budget = budget_.load(std::memory_order_relaxed);
  const bool small_gain = resident_before < resident_after + budget / kSmallGainPart;
  trim_period_us_ = small_gain ? std::min(2 * trim_period_us_, kTrimPeriodUsMax) : kTrimPeriodUs;
}

std::size_t MemoryMeter::Share(std::size_t index, std::size_t bytes, std::size_t resident_bytes, std::size_t budget) {
  counted_[index].store(bytes, std::memory_order_relaxed);
  const std::size_t uncounted = UncountedBytes(resident_bytes);
  const std::size_t left = budget - std::min(budget, uncounted);
  return std::max(left, budget / kSharesMinPart) / counted_.size();
}

std::size_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long long size = 0, resident = 0;
  const int read = std::fscanf(file, "%llu %llu", &size, &resident);
  std::fclose(file);
  return read == 2 ? static_cast<std::size_t>(resident) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace tarn::server

// How the hot-row cache lies in memory, and the rules that its implementations share. Internal to kernels/. C++17, for
// nvcc, which compiles the functions for the GPU too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/hash.h"

namespace tarn::kernels::hot {

inline constexpr std::uint32_t kWays = 128;      // slots of a bucket
inline constexpr std::uint8_t kNoDigest = 0;     // of a slot that is free or detached
inline constexpr std::uint32_t kNone = ~0u;      // kNoSlot
inline constexpr std::uint64_t kPinned = ~0ull;  // a rank that is never chosen

// All that is known of a slot but its digest, on the 32 bytes that a GPU's memory moves at once.
struct alignas(32) Slot {
  std::uint64_t key = 0;
  std::uint64_t stamp = 0;  // version + 1
  std::uint32_t score = 0;
  std::uint32_t pins = 0;
};
static_assert(sizeof(Slot) == 32);

// Slot s is slot s % kWays of bucket s / kWays.
struct Table {
  std::uint32_t dim = 0;
  std::uint32_t buckets = 0;
  bool counts = false;              // scores count (kLfu), or are times (kLru)
  std::uint8_t* digests = nullptr;  // of a bucket: 128 bytes, aligned to 128
  Slot* slots = nullptr;
  float* rows = nullptr;
};

// So many that all their slots have numbers below kNone.
constexpr std::uint32_t BucketsFor(std::uint64_t rows) {
  constexpr std::uint64_t kBucketsMax = kNone / kWays;
  const std::uint64_t buckets = rows / kWays;
  return static_cast<std::uint32_t>(buckets < 1 ? 1 : buckets > kBucketsMax ? kBucketsMax : buckets);
}

// The bucket is of the upper bits of the hash, the digest of the lowest.
constexpr std::uint64_t HashOf(std::uint64_t key) { return Mix64(key); }
constexpr std::uint32_t BucketOf(std::uint64_t hash, std::uint32_t buckets) {
  return static_cast<std::uint32_t>(((hash >> 32) * buckets) >> 32);
}
constexpr std::uint8_t DigestOf(std::uint64_t hash) {
  const auto digest = static_cast<std::uint8_t>(hash);
  return digest == kNoDigest ? 1 : digest;
}

constexpr bool IsYoungEnough(std::uint64_t stamp, std::uint64_t least) { return stamp > least; }

// The slot of the lowest rank is taken, of equal ones the first: what is free, then what is too old, then the others,
// each by its score.
constexpr std::uint64_t RankOf(std::uint8_t digest, const Slot& slot, std::uint64_t least) {
  if (slot.pins != 0) return kPinned;
  if (digest == kNoDigest) return 0;
  return 1 + std::uint64_t{slot.score} + (IsYoungEnough(slot.stamp, least) ? std::uint64_t{1} << 32 : 0);
}

// Scores of a row that came in, and of one that was looked for where there was one already, at `now`.
constexpr std::uint32_t FirstScore(bool counts, std::uint32_t now) { return counts ? 1 : now; }
constexpr std::uint32_t NextScore(bool counts, std::uint32_t score, std::uint32_t now) {
  if (!counts) return now;
  return score == ~0u ? score : score + 1;
}

}  // namespace tarn::kernels::hot

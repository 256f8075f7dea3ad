// The memory layout of the hot-row cache, and the rules that its implementations share. Internal to kernels/. C++17,
// for nvcc, which compiles the functions for the GPU too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/hash.h"

namespace tarn::kernels::hot {

inline constexpr std::uint32_t kWays = 128;      // slots of a bucket
inline constexpr std::uint8_t kNoDigest = 0;     // of a slot that is free or detached
inline constexpr std::uint32_t kNone = ~0u;      // kNoSlot
inline constexpr std::uint64_t kPinned = ~0ull;  // rank of a pinned slot, which is never used for a new row

// State of a slot except for its digest, aligned to the 32 bytes of a GPU memory transaction.
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
  bool counts = false;              // scores are counts (kLfu), else batch numbers (kLru)
  std::uint8_t* digests = nullptr;  // of a bucket: 128 bytes, aligned to 128
  Slot* slots = nullptr;
  float* rows = nullptr;
};

// Number of buckets for `rows`, limited so that all slot numbers are below kNone.
constexpr std::uint32_t BucketsFor(std::uint64_t rows) {
  constexpr std::uint64_t kBucketsMax = kNone / kWays;
  const std::uint64_t buckets = rows / kWays;
  return static_cast<std::uint32_t>(buckets < 1 ? 1 : buckets > kBucketsMax ? kBucketsMax : buckets);
}

// The upper bits of the hash give the bucket, the lowest bits the digest.
constexpr std::uint64_t HashOf(std::uint64_t key) { return Mix64(key); }
constexpr std::uint32_t BucketOf(std::uint64_t hash, std::uint32_t buckets) {
  return static_cast<std::uint32_t>(((hash >> 32) * buckets) >> 32);
}
constexpr std::uint8_t DigestOf(std::uint64_t hash) {
  const auto digest = static_cast<std::uint8_t>(hash);
  return digest == kNoDigest ? 1 : digest;
}

constexpr bool IsYoungEnough(std::uint64_t stamp, std::uint64_t least) { return stamp > least; }

// A new row gets the slot with the lowest rank, the first of equal ones. The order of ranks: free slots, rows that are
// too old by score, other rows by score.
constexpr std::uint64_t RankOf(std::uint8_t digest, const Slot& slot, std::uint64_t least) {
  if (slot.pins != 0) return kPinned;
  if (digest == kNoDigest) return 0;
  return 1 + std::uint64_t{slot.score} + (IsYoungEnough(slot.stamp, least) ? std::uint64_t{1} << 32 : 0);
}

// FirstScore: score of an inserted row; NextScore: score of a row that was found. `now`: number of the current batch.
constexpr std::uint32_t FirstScore(bool counts, std::uint32_t now) { return counts ? 1 : now; }
constexpr std::uint32_t NextScore(bool counts, std::uint32_t score, std::uint32_t now) {
  if (!counts) return now;
  return score == ~0u ? score : score + 1;
}

}  // namespace tarn::kernels::hot

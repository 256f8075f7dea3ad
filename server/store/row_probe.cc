#include "server/store/row_probe.h"

#include <algorithm>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/store/row_probe.cc"
#include "hwy/foreach_target.h"  // compiles the loop below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::server::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::uint32_t kLineFloats = 16;

// Index of the key in bucket.keys, or kKeys if none is equal. An index of `used` or more is that of an erased key. May
// also compare the words after the keys; matches there are ignored.
HWY_INLINE std::uint32_t PlaceIn(const RowBucket& bucket, Key key) {
  constexpr std::size_t kLineWords = 8;
  const hn::CappedTag<std::uint64_t, kLineWords> lanes;
  constexpr std::size_t kLanes = hn::MaxLanes(lanes);
  constexpr std::size_t kLoads = (RowBucket::kKeys + kLanes - 1) / kLanes;
  static_assert(kLoads * kLanes <= kLineWords);
  const auto wanted = hn::Set(lanes, key);
  std::uint32_t hits = 1u << RowBucket::kKeys;
  for (std::size_t load = 0; load < kLoads; ++load) {
    const auto words = hn::Load(lanes, reinterpret_cast<const std::uint64_t*>(&bucket) + load * kLanes);
    std::uint8_t bits = 0;
    hn::StoreMaskBits(lanes, hn::Eq(words, wanted), &bits);
    hits |= static_cast<std::uint32_t>(bits) << (load * kLanes);
  }
  return static_cast<std::uint32_t>(__builtin_ctz(hits));
}

void Probe(std::size_t n, const Key* keys, const RowBucket* const* buckets, std::uint32_t* rows) {
  for (std::size_t i = 0; i < n; ++i) {
    const RowBucket& bucket = *buckets[i];
    const std::uint32_t at = PlaceIn(bucket, keys[i]);
    const std::uint32_t row = bucket.rows[at < RowBucket::kKeys ? at : 0];
    const std::uint32_t without = bucket.used == RowBucket::kKeys ? kRowFurther : kNoRow;
    rows[i] = at < bucket.used ? row : without;
  }
}

// All bits set if true.
HWY_INLINE std::uintptr_t Mask(bool condition) { return std::uintptr_t{0} - std::uintptr_t{condition}; }

// Without branches on the result: overflowed keys are unpredictable, and a misprediction costs as much as a row.
std::size_t Locate(RowPlaces places, std::uint32_t near_floats, std::size_t n, const Key* HWY_RESTRICT keys,
                   const RowBucket* const* HWY_RESTRICT buckets, std::uint32_t* HWY_RESTRICT numbers,
                   float** HWY_RESTRICT rows, std::uint32_t* HWY_RESTRICT further) {
  std::size_t n_further = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const RowBucket* bucket = buckets[i];
    const std::uint32_t at = PlaceIn(*bucket, keys[i]);
    const std::uintptr_t found = Mask(at < bucket->used);
    const std::uintptr_t more = ~found & Mask(bucket->used == RowBucket::kKeys);
    // If the key is absent, this is the row of another key, or an old one.
    const std::uint32_t number = bucket->rows[std::min(at, RowBucket::kKeys - 1)];
    const float* row = places.Row(number);
    const auto row_at = reinterpret_cast<std::uintptr_t>(row), next_at = reinterpret_cast<std::uintptr_t>(bucket + 1);
    __builtin_prefetch(reinterpret_cast<const void*>((row_at & ~more) | (next_at & more)), 1);
    for (std::uint32_t f = kLineFloats; f < near_floats; f += kLineFloats) __builtin_prefetch(row + f, 1);
    rows[i] = reinterpret_cast<float*>(row_at & found);
    numbers[i] = static_cast<std::uint32_t>((number & found) | ((kNoRow + more) & ~found));
    further[n_further] = static_cast<std::uint32_t>(i);
    n_further -= more;
  }
  return n_further;
}
static_assert(static_cast<std::uint32_t>(kNoRow + ~std::uintptr_t{0}) == kRowFurther);

}  // namespace
}  // namespace tarn::server::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::server {

HWY_EXPORT(Probe);
HWY_EXPORT(Locate);

void ProbeBuckets(std::size_t n, const Key* keys, const RowBucket* const* buckets, std::uint32_t* rows) {
  HWY_DYNAMIC_DISPATCH(Probe)(n, keys, buckets, rows);
}

std::size_t LocateRows(const RowSlabs& slabs, std::uint32_t near_floats, std::size_t n, const Key* keys,
                       const RowBucket* const* buckets, std::uint32_t* numbers, float** rows, std::uint32_t* further) {
  TARN_CHECK(slabs.size() != 0, "a look-up in slabs without rows");
  return HWY_DYNAMIC_DISPATCH(Locate)(slabs.places(), near_floats, n, keys, buckets, numbers, rows, further);
}

}  // namespace tarn::server
#endif  // HWY_ONCE

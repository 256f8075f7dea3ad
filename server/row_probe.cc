#include "server/row_probe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/row_probe.cc"
#include "hwy/foreach_target.h"  // compiles the loop below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::server::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Compares a key with the whole line. What is no key in it, or is no longer one, lies at `used` or behind.
void Probe(std::size_t n, const Key* keys, const RowBucket* const* buckets, std::uint32_t* rows) {
  constexpr std::size_t kLineWords = 8;
  const hn::CappedTag<std::uint64_t, kLineWords> lanes;
  constexpr std::size_t kLanes = hn::MaxLanes(lanes);
  constexpr std::size_t kLoads = (RowBucket::kKeys + kLanes - 1) / kLanes;
  static_assert(kLoads * kLanes <= kLineWords);
  for (std::size_t i = 0; i < n; ++i) {
    const RowBucket& bucket = *buckets[i];
    const auto key = hn::Set(lanes, keys[i]);
    std::uint32_t hits = 1u << RowBucket::kKeys;
    for (std::size_t load = 0; load < kLoads; ++load) {
      const auto words = hn::Load(lanes, reinterpret_cast<const std::uint64_t*>(&bucket) + load * kLanes);
      std::uint8_t bits = 0;
      hn::StoreMaskBits(lanes, hn::Eq(words, key), &bits);
      hits |= static_cast<std::uint32_t>(bits) << (load * kLanes);
    }
    const auto at = static_cast<std::uint32_t>(__builtin_ctz(hits));
    const std::uint32_t row = bucket.rows[at < RowBucket::kKeys ? at : 0];
    const std::uint32_t without = bucket.used == RowBucket::kKeys ? kRowFurther : kNoRow;
    rows[i] = at < bucket.used ? row : without;
  }
}

}  // namespace
}  // namespace tarn::server::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::server {

HWY_EXPORT(Probe);

void ProbeBuckets(std::size_t n, const Key* keys, const RowBucket* const* buckets, std::uint32_t* rows) {
  HWY_DYNAMIC_DISPATCH(Probe)(n, keys, buckets, rows);
}

}  // namespace tarn::server
#endif  // HWY_ONCE

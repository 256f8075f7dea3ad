// Looking up a group of keys in their buckets at once. Buckets are those of server/store/row_index.h: one cache line
// each, its first `used` keys are there. Vector instructions of the machine at hand; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"
#include "server/store/row_slabs.h"

namespace tarn::server {

struct alignas(64) RowBucket {
  static constexpr std::uint32_t kKeys = 5;
  Key keys[kKeys];
  std::uint32_t rows[kKeys];
  std::uint32_t used;
};
static_assert(sizeof(RowBucket) == 64);

constexpr std::uint32_t kNoRow = 0xffffffff;
constexpr std::uint32_t kRowFurther = 0xfffffffe;

// rows[i]: the row of keys[i] in *buckets[i]. Where it is not there: kNoRow if the bucket has room, kRowFurther if it
// is full, so that the key may lie in the next one.
void ProbeBuckets(std::size_t n, const Key* keys, const RowBucket* const* buckets, std::uint32_t* rows);

// The same for keys of one partition, with `numbers` as the rows above and rows[i] where that row lies in `slabs`
// (which has rows), null where there is none; its first `near_floats` floats are on their way into the cache. Of each
// kRowFurther the next bucket is, and i is in `further` (room for n); how many those are.
std::size_t LocateRows(const RowSlabs& slabs, std::uint32_t near_floats, std::size_t n, const Key* keys,
                       const RowBucket* const* buckets, std::uint32_t* numbers, float** rows, std::uint32_t* further);

}  // namespace tarn::server

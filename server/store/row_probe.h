// Looks up a group of keys in their buckets at once, with the vector instructions of the processor. The buckets are
// those of server/store/row_index.h: one cache line each, of which the first `used` keys are valid. Any thread.
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

// rows[i]: the row of keys[i] in *buckets[i]. If the bucket does not contain the key: kNoRow if the bucket has room,
// kRowFurther if it is full, because the key may be in the next one.
void ProbeBuckets(std::size_t n, const Key* keys, const RowBucket* const* buckets, std::uint32_t* rows);

// The same for keys of one partition, with the row numbers in `numbers`. rows[i]: the address of that row in `slabs`
// (which is not empty), or null. Prefetches the first `near_floats` floats of each row. For each kRowFurther,
// prefetches the next bucket and stores i in `further`, which has room for n. Returns how many it has stored.
std::size_t LocateRows(const RowSlabs& slabs, std::uint32_t near_floats, std::size_t n, const Key* keys,
                       const RowBucket* const* buckets, std::uint32_t* numbers, float** rows, std::uint32_t* further);

}  // namespace tarn::server

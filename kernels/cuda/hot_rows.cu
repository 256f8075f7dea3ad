// The hot-row cache: a warp looks for a key, four slots of its bucket a lane, and one warp does all insertions of a
// bucket, in the order of the batch, so that slots do not depend on who comes first.
#include <thrust/iterator/counting_iterator.h>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/hot_rows_launch.h"

namespace tarn::kernels::cuda {
namespace {

constexpr unsigned kPerLane = hot::kWays / kWarp;
static_assert(kPerLane == 4, "a lane reads its digests as one word");
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline std::uint32_t DigestsOf(const hot::Table& table, std::uint32_t bucket, unsigned lane) {
  return reinterpret_cast<const std::uint32_t*>(table.digests)[std::size_t{bucket} * kWarp + lane];
}

// Which of this lane's four slots, counted from slot `first`, holds the key; 4 for none.
__device__ inline unsigned WayOf(const hot::Table& table, std::uint32_t digests, std::uint8_t digest,
                                 std::uint32_t first, std::uint64_t key) {
  const std::uint32_t same = __vcmpeq4(digests, digest * 0x01010101u);
  unsigned way = kPerLane;
  for (unsigned q = 0; q < kPerLane; ++q)
    if ((same >> (8 * q) & 0xffu) != 0 && table.keys[first + q] == key) way = q;
  return way;
}

// The slot of `key`, on the lane that has it; kNone on the others.
__device__ inline std::uint32_t SlotOf(const hot::Table& table, std::uint64_t key, unsigned lane) {
  const std::uint64_t hash = hot::HashOf(key);
  const std::uint32_t bucket = hot::BucketOf(hash, table.buckets);
  const std::uint32_t first = bucket * hot::kWays + lane * kPerLane;
  const unsigned way = WayOf(table, DigestsOf(table, bucket, lane), hot::DigestOf(hash), first, key);
  return way == kPerLane ? hot::kNone : first + way;
}

struct HasNoSlot {
  const std::uint32_t* slots;
  __device__ bool operator()(std::uint32_t i) const { return slots[i] == hot::kNone; }
};

// A bucket as the warp that inserts into it sees it: four slots a lane.
struct LaneSlots {
  std::uint32_t first;    // slot
  std::uint32_t digests;  // of the four
  std::uint64_t ranks[kPerLane];
};

__device__ LaneSlots LoadLane(const hot::Table& table, std::uint32_t bucket, unsigned lane, std::uint64_t least) {
  LaneSlots l;
  l.first = bucket * hot::kWays + lane * kPerLane;
  l.digests = DigestsOf(table, bucket, lane);
#pragma unroll
  for (unsigned q = 0; q < kPerLane; ++q) {
    const std::uint32_t slot = l.first + q;
    l.ranks[q] = hot::RankOf(static_cast<std::uint8_t>(l.digests >> (8 * q)), table.pins[slot], table.stamps[slot],
                             table.scores[slot], least);
  }
  return l;
}

// The slot of the bucket that is taken next, the same on all lanes; kNone if all are pinned.
__device__ std::uint32_t Victim(const LaneSlots& l, std::uint32_t bucket, unsigned lane) {
  std::uint64_t lowest = hot::kPinned;  // rank, then slot of the bucket: ranks have 34 bits
#pragma unroll
  for (unsigned q = 0; q < kPerLane; ++q)
    if (l.ranks[q] != hot::kPinned) {
      const std::uint64_t place = l.ranks[q] * hot::kWays + lane * kPerLane + q;
      lowest = place < lowest ? place : lowest;
    }
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    const std::uint64_t other = __shfl_xor_sync(kAllLanes, lowest, offset);
    lowest = other < lowest ? other : lowest;
  }
  return lowest == hot::kPinned ? hot::kNone : bucket * hot::kWays + static_cast<std::uint32_t>(lowest % hot::kWays);
}

__device__ inline void SetDigest(const hot::Table& table, LaneSlots* l, unsigned q, std::uint8_t digest) {
  l->digests = (l->digests & ~(0xffu << (8 * q))) | static_cast<std::uint32_t>(digest) << (8 * q);
  table.digests[l->first + q] = digest;
}

__device__ inline unsigned WayOf(const hot::Table& table, const LaneSlots& l, std::uint64_t key) {
  return WayOf(table, l.digests, hot::DigestOf(hot::HashOf(key)), l.first, key);
}

// A pinned slot for a row of `key` that is still to come, or kNone; the same on all lanes.
__device__ std::uint32_t Place(const hot::Table& table, LaneSlots* l, std::uint32_t bucket, std::uint64_t key,
                               std::uint64_t least, std::uint32_t now, unsigned lane) {
  const unsigned mine = WayOf(table, *l, key);
  const unsigned older = __ballot_sync(kAllLanes, mine != kPerLane);
  std::uint32_t score = hot::FirstScore(table.counts, now);
  if (mine != kPerLane) score = hot::NextScore(table.counts, table.scores[l->first + mine], now);
  if (older != 0) score = __shfl_sync(kAllLanes, score, __ffs(older) - 1);
  bool again = false;  // the slot that has the key is free to take the new row
  if (mine != kPerLane) {
#pragma unroll
    for (unsigned q = 0; q < kPerLane; ++q)
      if (q == mine) again = l->ranks[q] != hot::kPinned;
    if (!again) SetDigest(table, l, mine, hot::kNoDigest);
  }
  const unsigned holder = __ballot_sync(kAllLanes, again);
  const std::uint32_t slot =
      holder != 0 ? __shfl_sync(kAllLanes, l->first + mine, __ffs(holder) - 1) : Victim(*l, bucket, lane);
  if (slot == hot::kNone || slot - l->first >= kPerLane) return slot;
  const unsigned q = slot - l->first;
  SetDigest(table, l, q, hot::DigestOf(hot::HashOf(key)));
#pragma unroll
  for (unsigned r = 0; r < kPerLane; ++r)
    if (r == q) l->ranks[r] = hot::kPinned;
  table.keys[slot] = key;
  table.stamps[slot] = least + 1;
  table.scores[slot] = score;
  table.pins[slot] = 1;
  return slot;
}

__global__ void InsertKernel(hot::Table table, HotScratch scratch, std::size_t n, const std::uint64_t* keys,
                             std::uint64_t least, std::uint32_t now, std::uint32_t* slots) {
  const unsigned lane = Lane();
  for (std::size_t begin = FirstWarp(); begin < n; begin += Warps()) {
    const std::uint32_t bucket = scratch.sorted_buckets[begin];
    if (bucket == table.buckets) return;  // from here on all have a slot
    if (begin > 0 && scratch.sorted_buckets[begin - 1] == bucket) continue;
    LaneSlots l = LoadLane(table, bucket, lane, least);
    for (const bool older : {true, false}) {
      for (std::size_t j = begin; j < n && scratch.sorted_buckets[j] == bucket; ++j) {
        const std::uint32_t i = scratch.sorted_positions[j];
        if (older ? !__any_sync(kAllLanes, WayOf(table, l, keys[i]) != kPerLane) : slots[i] != hot::kNone) continue;
        const std::uint32_t slot = Place(table, &l, bucket, keys[i], least, now, lane);
        if (lane == 0) slots[i] = slot;
      }
      __syncwarp();  // who comes second sees the slots of the first
    }
  }
}

__global__ void OldestKernel(hot::Table table, std::size_t n, const std::uint32_t* slots, unsigned long long* oldest) {
  unsigned long long least = ~0ull;
  for (std::size_t i = FirstThread(); i < n; i += Threads())
    if (slots[i] != hot::kNone) least = min(least, static_cast<unsigned long long>(table.stamps[slots[i]] - 1));
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2)
    least = min(least, __shfl_xor_sync(kAllLanes, least, offset));
  if (Lane() == 0) atomicMin(oldest, least);
}

// Copies `dim` floats by a warp, 16 bytes a lane where rows lie so.
__device__ inline void CopyRow(std::uint32_t dim, bool aligned, const float* from, float* to, unsigned lane) {
  if (aligned) {
    for (std::uint32_t j = lane; j < dim / 4; j += kWarp)
      reinterpret_cast<float4*>(to)[j] = reinterpret_cast<const float4*>(from)[j];
  } else {
    for (std::uint32_t j = lane; j < dim; j += kWarp) to[j] = from[j];
  }
}

int BitsOf(std::uint32_t value) {
  int bits = 0;
  for (; value != 0; value >>= 1) ++bits;
  return bits;
}

cudaError_t SelectMissing(void* cub, std::size_t* bytes, const std::uint32_t* slots, std::uint32_t n,
                          std::uint32_t* missing, std::uint32_t* count, cudaStream_t stream) {
  return cub::DeviceSelect::If(cub, *bytes, thrust::counting_iterator<std::uint32_t>(0), missing, count,
                               static_cast<int>(n), HasNoSlot{slots}, stream);
}

// Stable, so that the positions of a bucket stay in order.
cudaError_t SortByBucket(const HotScratch& scratch, std::size_t* bytes, std::uint32_t n, std::uint32_t buckets,
                         cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(scratch.cub, *bytes, scratch.buckets, scratch.sorted_buckets,
                                         scratch.positions, scratch.sorted_positions, static_cast<int>(n), 0,
                                         BitsOf(buckets), stream);
}

}  // namespace

cudaError_t HotCubBytes(std::uint32_t keys_max, std::uint32_t buckets, std::size_t* bytes) {
  std::size_t select = 0, sort = 0;
  if (const cudaError_t error = SelectMissing(nullptr, &select, nullptr, keys_max, nullptr, nullptr, nullptr);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = SortByBucket({}, &sort, keys_max, buckets, nullptr); error != cudaSuccess) return error;
  *bytes = std::max(select, sort);
  return cudaSuccess;
}

cudaError_t HotFind(cudaStream_t stream, const hot::Table& table, const HotScratch& scratch, std::size_t n,
                    const std::uint64_t* keys, std::uint64_t least, std::uint32_t now, std::uint32_t* slots,
                    std::uint32_t* missing, std::uint32_t* missing_count) {
  if (n == 0) return cudaMemsetAsync(missing_count, 0, sizeof *missing_count, stream);
  if (const cudaError_t error =
          ForEachRow(stream, n,
                     [=] __device__(std::size_t i, unsigned lane) {
                       const std::uint32_t slot = SlotOf(table, keys[i], lane);
                       const bool hit = slot != hot::kNone && hot::IsYoungEnough(table.stamps[slot], least);
                       const unsigned holder = __ballot_sync(kAllLanes, hit);
                       if (hit) {
                         slots[i] = slot;
                         ++table.pins[slot];
                         table.scores[slot] = hot::NextScore(table.counts, table.scores[slot], now);
                       } else if (holder == 0 && lane == 0) {
                         slots[i] = hot::kNone;
                       }
                     });
      error != cudaSuccess)
    return error;
  std::size_t bytes = scratch.cub_bytes;
  return SelectMissing(scratch.cub, &bytes, slots, static_cast<std::uint32_t>(n), missing, missing_count, stream);
}

cudaError_t HotInsert(cudaStream_t stream, const hot::Table& table, const HotScratch& scratch, std::size_t n,
                      const std::uint64_t* keys, std::uint64_t least, std::uint32_t now, std::uint32_t* slots) {
  if (n == 0) return cudaSuccess;
  if (const cudaError_t error = ForEach(stream, n,
                                        [=] __device__(std::size_t i) {
                                          scratch.buckets[i] = slots[i] == hot::kNone
                                                                   ? hot::BucketOf(hot::HashOf(keys[i]), table.buckets)
                                                                   : table.buckets;
                                          scratch.positions[i] = static_cast<std::uint32_t>(i);
                                        });
      error != cudaSuccess)
    return error;
  std::size_t bytes = scratch.cub_bytes;
  if (const cudaError_t error = SortByBucket(scratch, &bytes, static_cast<std::uint32_t>(n), table.buckets, stream);
      error != cudaSuccess)
    return error;
  InsertKernel<<<BlocksFor(n * kWarp), kBlock, 0, stream>>>(table, scratch, n, keys, least, now, slots);
  return cudaGetLastError();
}

cudaError_t HotFill(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* positions,
                    const std::uint32_t* slots, const float* rows, std::uint64_t version) {
  const bool aligned = table.dim % 4 == 0 && IsAligned16(rows);
  return ForEachRow(stream, n, [=] __device__(std::size_t j, unsigned lane) {
    const std::uint32_t slot = slots[positions == nullptr ? j : positions[j]];
    if (slot == hot::kNone) return;
    CopyRow(table.dim, aligned, rows + j * table.dim, table.rows + std::size_t{slot} * table.dim, lane);
    if (lane == 0) table.stamps[slot] = version + 1;
  });
}

cudaError_t HotRead(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots,
                    float* out) {
  const bool aligned = table.dim % 4 == 0 && IsAligned16(out);
  return ForEachRow(stream, n, [=] __device__(std::size_t i, unsigned lane) {
    const std::uint32_t slot = slots[i];
    if (slot != hot::kNone)
      CopyRow(table.dim, aligned, table.rows + std::size_t{slot} * table.dim, out + i * table.dim, lane);
  });
}

cudaError_t HotOldest(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots,
                      std::uint64_t* oldest) {
  static_assert(sizeof(unsigned long long) == sizeof *oldest);
  if (const cudaError_t error = cudaMemsetAsync(oldest, 0xff, sizeof *oldest, stream); error != cudaSuccess)
    return error;
  if (n == 0) return cudaSuccess;
  OldestKernel<<<BlocksFor(n), kBlock, 0, stream>>>(table, n, slots, reinterpret_cast<unsigned long long*>(oldest));
  return cudaGetLastError();
}

cudaError_t HotUnpin(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots) {
  return ForEach(stream, n, [=] __device__(std::size_t i) {
    if (slots[i] != hot::kNone) --table.pins[slots[i]];
  });
}

cudaError_t HotEvict(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint64_t* keys) {
  return ForEachRow(stream, n, [=] __device__(std::size_t i, unsigned lane) {
    const std::uint32_t slot = SlotOf(table, keys[i], lane);
    if (slot != hot::kNone) table.digests[slot] = hot::kNoDigest;
  });
}

cudaError_t HotAge(cudaStream_t stream, const hot::Table& table) {
  return ForEach(stream, std::size_t{table.buckets} * hot::kWays,
                 [=] __device__(std::size_t slot) { table.scores[slot] /= 2; });
}

}  // namespace tarn::kernels::cuda

// The hot-row cache. Eight lanes look up each key. One warp does all insertions of a bucket, four slots per lane, in
// the order of the batch, so that the slots do not depend on timing.
#include <thrust/iterator/counting_iterator.h>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/hot_rows_launch.h"
#include "kernels/cuda/move_rows.cuh"

namespace tarn::kernels::cuda {
namespace {

constexpr unsigned kPerLane = hot::kWays / kWarp;
static_assert(kPerLane == 4, "a lane reads its digests as one word");
constexpr unsigned kAllLanes = 0xffffffffu;

// Which bytes of `four` equal the digest: bit q stands for byte q.
__device__ inline unsigned BytesOf(std::uint32_t four, std::uint8_t digest) {
  return (__vcmpeq4(four, digest * 0x01010101u) & 0x01010101u) * 0x01020408u >> 24;
}

// A key to be looked up, with its bucket and digest.
struct LookupKey {
  std::uint64_t key;
  std::uint32_t bucket;
  std::uint8_t digest;

  __device__ LookupKey(const hot::Table& table, std::uint64_t key_) : key(key_) {
    const std::uint64_t hash = hot::HashOf(key);
    bucket = hot::BucketOf(hash, table.buckets);
    digest = hot::DigestOf(hash);
  }
};

// Eight lanes search a key's bucket, 16 digests each, so a warp searches four of its 32 keys at a time; kSearches
// searches are in flight. Where a digest matches, the lane reads the slot's whole state at once. In a full bucket,
// a search has half a false match on average.
constexpr unsigned kSearches = 2;
constexpr unsigned kLanesOfKey = 8;
constexpr unsigned kKeysOfSearch = kWarp / kLanesOfKey;

// Searches the slots first + b, for each bit b that is set in `same`, and returns the one with the key; kNone if there
// is none. `seen`: on entry the state of the lowest of these slots, on return that of the returned one.
__device__ inline std::uint32_t SlotAmong(const hot::Table& table, std::uint64_t key, std::uint32_t first,
                                          unsigned same, hot::Slot* seen) {
  while (same != 0) {
    const std::uint32_t slot = first + __ffs(same) - 1;
    if (seen->key == key) return slot;
    same &= same - 1;
    if (same != 0) *seen = table.slots[first + __ffs(same) - 1];
  }
  return hot::kNone;
}

// Calls f.Found(i, slot, its state) on one lane for each key that has a slot, and f.NotFound(i) on one lane if there is
// no slot or Found returns false.
template <typename F>
__global__ void __launch_bounds__(kBlock)
    ForEachKeyKernel(hot::Table table, std::size_t n, const std::uint64_t* keys, F f) {
  const unsigned group = Lane() / kLanesOfKey, lane = Lane() % kLanesOfKey;
  for (std::size_t begin = FirstWarp() * kWarp; begin < n; begin += Warps() * kWarp) {
    const LookupKey mine(table, begin + Lane() < n ? keys[begin + Lane()] : 0);
    for (unsigned search = 0; search < kWarp / kKeysOfSearch; search += kSearches) {
      uint4 digests[kSearches];
      std::uint32_t first[kSearches];
      unsigned same[kSearches];
      hot::Slot seen[kSearches];
#pragma unroll
      for (unsigned q = 0; q < kSearches; ++q) {
        const std::uint32_t bucket = __shfl_sync(kAllLanes, mine.bucket, (search + q) * kKeysOfSearch + group);
        first[q] = bucket * hot::kWays + lane * 16;
        digests[q] = *reinterpret_cast<const uint4*>(table.digests + first[q]);
      }
#pragma unroll
      for (unsigned q = 0; q < kSearches; ++q) {
        const auto digest = static_cast<std::uint8_t>(
            __shfl_sync(kAllLanes, std::uint32_t{mine.digest}, (search + q) * kKeysOfSearch + group));
        same[q] = BytesOf(digests[q].x, digest) | BytesOf(digests[q].y, digest) << 4 |
                  BytesOf(digests[q].z, digest) << 8 | BytesOf(digests[q].w, digest) << 12;
        if (same[q] != 0) seen[q] = table.slots[first[q] + __ffs(same[q]) - 1];
      }
#pragma unroll
      for (unsigned q = 0; q < kSearches; ++q) {
        const unsigned at = (search + q) * kKeysOfSearch + group;
        const std::uint64_t key = __shfl_sync(kAllLanes, mine.key, at);
        const bool in_batch = begin + at < n;
        const std::uint32_t slot = in_batch ? SlotAmong(table, key, first[q], same[q], &seen[q]) : hot::kNone;
        const bool found = slot != hot::kNone && f.Found(begin + at, slot, seen[q]);
        const unsigned of_key = __ballot_sync(kAllLanes, found) >> (group * kLanesOfKey) & 0xffu;
        if (in_batch && of_key == 0 && lane == 0) f.NotFound(begin + at);
      }
    }
  }
}

template <typename F>
cudaError_t ForEachKey(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint64_t* keys, F f) {
  if (n == 0) return cudaSuccess;
  ForEachKeyKernel<<<BlocksFor(n), kBlock, 0, stream>>>(table, n, keys, f);
  return cudaGetLastError();
}

struct PinFound {
  hot::Table table;
  std::uint64_t least;
  std::uint32_t now;
  std::uint32_t* slots;

  __device__ bool Found(std::size_t i, std::uint32_t slot, const hot::Slot& seen) const {
    if (!hot::IsYoungEnough(seen.stamp, least)) return false;
    slots[i] = slot;
    table.slots[slot].pins = seen.pins + 1;
    table.slots[slot].score = hot::NextScore(table.counts, seen.score, now);
    return true;
  }
  __device__ void NotFound(std::size_t i) const { slots[i] = hot::kNone; }
};

struct Detach {
  hot::Table table;

  __device__ bool Found(std::size_t, std::uint32_t slot, const hot::Slot&) const {
    table.digests[slot] = hot::kNoDigest;
    return true;
  }
  __device__ void NotFound(std::size_t) const {}
};

__device__ inline std::uint32_t DigestsOf(const hot::Table& table, std::uint32_t bucket, unsigned lane) {
  return reinterpret_cast<const std::uint32_t*>(table.digests)[std::size_t{bucket} * kWarp + lane];
}

// Which of this lane's four slots, counted from slot `first`, holds the key; 4 for none.
__device__ inline unsigned WayOf(const hot::Table& table, std::uint32_t digests, std::uint8_t digest,
                                 std::uint32_t first, std::uint64_t key) {
  const unsigned same = BytesOf(digests, digest);
  unsigned way = kPerLane;
  for (unsigned q = 0; q < kPerLane; ++q)
    if ((same >> q & 1) != 0 && table.slots[first + q].key == key) way = q;
  return way;
}

struct HasNoSlot {
  const std::uint32_t* slots;
  __device__ bool operator()(std::uint32_t i) const { return slots[i] == hot::kNone; }
};

// A bucket in the registers of the warp that inserts into it: four slots per lane.
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
    const hot::Slot slot = table.slots[l.first + q];
    l.ranks[q] = hot::RankOf(static_cast<std::uint8_t>(l.digests >> (8 * q)), slot, least);
  }
  return l;
}

// The slot of the bucket with the lowest rank, the same on all lanes; kNone if all are pinned.
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

// A pinned slot for a future row of `key`, or kNone; the same on all lanes.
__device__ std::uint32_t Place(const hot::Table& table, LaneSlots* l, std::uint32_t bucket, std::uint64_t key,
                               std::uint64_t least, std::uint32_t now, unsigned lane) {
  const unsigned mine = WayOf(table, *l, key);
  const unsigned older = __ballot_sync(kAllLanes, mine != kPerLane);
  std::uint32_t score = hot::FirstScore(table.counts, now);
  if (mine != kPerLane) score = hot::NextScore(table.counts, table.slots[l->first + mine].score, now);
  if (older != 0) score = __shfl_sync(kAllLanes, score, __ffs(older) - 1);
  bool reuse = false;  // the slot that has the key can hold the new row
  if (mine != kPerLane) {
#pragma unroll
    for (unsigned q = 0; q < kPerLane; ++q)
      if (q == mine) reuse = l->ranks[q] != hot::kPinned;
    if (!reuse) SetDigest(table, l, mine, hot::kNoDigest);
  }
  const unsigned holder = __ballot_sync(kAllLanes, reuse);
  const std::uint32_t slot =
      holder != 0 ? __shfl_sync(kAllLanes, l->first + mine, __ffs(holder) - 1) : Victim(*l, bucket, lane);
  if (slot == hot::kNone || slot - l->first >= kPerLane) return slot;
  const unsigned q = slot - l->first;
  SetDigest(table, l, q, hot::DigestOf(hot::HashOf(key)));
#pragma unroll
  for (unsigned r = 0; r < kPerLane; ++r)
    if (r == q) l->ranks[r] = hot::kPinned;
  hot::Slot taken;
  taken.key = key;
  taken.stamp = least + 1;
  taken.score = score;
  taken.pins = 1;
  table.slots[slot] = taken;
  return slot;
}

__global__ void InsertKernel(hot::Table table, HotScratch scratch, std::size_t n, const std::uint64_t* keys,
                             std::uint64_t least, std::uint32_t now, std::uint32_t* slots) {
  const unsigned lane = Lane();
  for (std::size_t begin = FirstWarp(); begin < n; begin += Warps()) {
    const std::uint32_t bucket = scratch.sorted_buckets[begin];
    if (bucket == table.buckets) return;  // all following ones have a slot
    if (begin > 0 && scratch.sorted_buckets[begin - 1] == bucket) continue;
    LaneSlots l = LoadLane(table, bucket, lane, least);
    for (const bool older : {true, false}) {
      for (std::size_t j = begin; j < n && scratch.sorted_buckets[j] == bucket; ++j) {
        const std::uint32_t i = scratch.sorted_positions[j];
        if (older ? !__any_sync(kAllLanes, WayOf(table, l, keys[i]) != kPerLane) : slots[i] != hot::kNone) continue;
        const std::uint32_t slot = Place(table, &l, bucket, keys[i], least, now, lane);
        if (lane == 0) slots[i] = slot;
      }
      __syncwarp();  // the second insertion must see the slots of the first
    }
  }
}

constexpr unsigned kOldestBlocks = 132 * 8;  // each ends with an atomic update of one word, which others wait for

__global__ void OldestKernel(hot::Table table, std::size_t n, const std::uint32_t* slots, unsigned long long* oldest) {
  __shared__ unsigned long long of_warps[kBlock / kWarp];
  unsigned long long least = ~0ull;
  for (std::size_t i = FirstThread(); i < n; i += Threads())
    if (slots[i] != hot::kNone) least = min(least, static_cast<unsigned long long>(table.slots[slots[i]].stamp - 1));
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2)
    least = min(least, __shfl_xor_sync(kAllLanes, least, offset));
  if (Lane() == 0) of_warps[threadIdx.x / kWarp] = least;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const unsigned long long of_warp : of_warps) least = min(least, of_warp);
  atomicMin(oldest, least);
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
  if (const cudaError_t error = ForEachKey(stream, table, n, keys, PinFound{table, least, now, slots});
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
  return MoveRows(stream, table.dim, n, IsAligned16(rows), [=] __device__(std::size_t j) {
    const std::uint32_t slot = __ldg(slots + (positions == nullptr ? j : __ldg(positions + j)));
    if (slot == hot::kNone) return Move{rows, nullptr};
    table.slots[slot].stamp = version + 1;  // every thread of the row writes the same value
    return Move{rows + j * table.dim, table.rows + std::size_t{slot} * table.dim};
  });
}

cudaError_t HotRead(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots,
                    float* out) {
  return MoveRows(stream, table.dim, n, IsAligned16(out), [=] __device__(std::size_t i) {
    const std::uint32_t slot = slots[i];
    if (slot == hot::kNone) return Move{table.rows, nullptr};
    return Move{table.rows + std::size_t{slot} * table.dim, out + i * table.dim};
  });
}

cudaError_t HotOldest(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots,
                      std::uint64_t* oldest) {
  static_assert(sizeof(unsigned long long) == sizeof *oldest);
  if (const cudaError_t error = cudaMemsetAsync(oldest, 0xff, sizeof *oldest, stream); error != cudaSuccess)
    return error;
  if (n == 0) return cudaSuccess;
  OldestKernel<<<std::min(BlocksFor(n), kOldestBlocks), kBlock, 0, stream>>>(
      table, n, slots, reinterpret_cast<unsigned long long*>(oldest));
  return cudaGetLastError();
}

cudaError_t HotUnpin(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots) {
  return ForEach(stream, n, [=] __device__(std::size_t i) {
    if (slots[i] == hot::kNone) return;
    std::uint32_t& pins = table.slots[slots[i]].pins;
    if (pins == 0) __trap();  // otherwise the slot could never be reused
    --pins;
  });
}

cudaError_t HotEvict(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint64_t* keys) {
  return ForEachKey(stream, table, n, keys, Detach{table});
}

cudaError_t HotAge(cudaStream_t stream, const hot::Table& table) {
  return ForEach(stream, std::size_t{table.buckets} * hot::kWays,
                 [=] __device__(std::size_t slot) { table.slots[slot].score /= 2; });
}

}  // namespace tarn::kernels::cuda

// A cache of rows of one table in the memory of the compute device: an implementation in GPU memory, and one in host
// memory, which is the reference: the same calls give the same slots.
//
//   auto cache = MakeHotRows(stream, {.dim = 128, .rows = 100'000'000, .batch_keys_max = 600'000});
//   cache->Find(n, keys, least, slots, missing, missing_count);  // rows young enough are pinned
//   cache->Insert(n, keys, least, slots);                        // a pinned place for each of the others
//   cache->Fill(part, positions, slots, rows, version);          // as they arrive: rows of the batch's `positions`
//   ... cache->rows() + slots[i] * dim, or Read ...              // what the batch computes with
//   cache->Unpin(n, slots);                                      // the batch is done
//
// A hash table of buckets of 128 slots. A key's bucket is fixed by its hash; 8 more bits of the hash, its digest, are
// stored separately from the keys. A look-up reads the bucket's 128 digests and then only the slots whose digest
// matches: in a full bucket, half a slot of another key on average. A slot is
//   free      no digest, not pinned: used first
//   kept      a row and its version, pinned by any number of batches; it may be found
//   detached  no digest, but pinned: cannot be found, but batches that pinned it still compute with it; free when
//             the last of them has unpinned it
// A pinned row is never overwritten: a newer one of the same key gets another slot, and the old one is detached.
//
// When a bucket is full, an unpinned row is evicted: one that is too old for any use, else any other; among these the
// one with the lowest score, then in the lowest slot. With kLru the score is the number of the last batch that looked
// up the row. With kLfu it is the number of batches that looked it up since its insertion; Age halves it, so that
// formerly frequent rows are evicted (as in TinyLFU: Einziger, Friedman, Manes, ACM Transactions on Storage 2017). If
// Insert replaces an older row of the same key, the new row continues its score.
//
// Staleness: a version is the shard's minimum clock when it answered; the row includes every push of clocks below it.
// Find takes the least version that the caller may use; older rows count as missing. A slot that is inserted and not
// yet filled has the version that its Insert named, because its pull returns at least that version: another batch may
// find it, and must order its use after the Fill. Before a batch unpins a slot that it inserted, it must have filled
// the slot or evicted its key (Evict).
//
// The keys of one call are distinct, at most batch_keys_max. Nothing is allocated after Make. Arrays are in the memory
// of the cache: the GPU's or the host's. The GPU's cache executes everything on the stream with which it was made,
// which outlives it; Wait of the stream returns its errors. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "core/hot_score.h"
#include "core/types.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

inline constexpr std::uint32_t kNoSlot = 0xffffffffu;

struct HotRowsOptions {
  std::uint32_t dim = 0;             // floats of a row
  std::uint64_t rows = 0;            // capacity; rounded down to whole buckets, at least one; below 2^32 - 1
  std::uint32_t batch_keys_max = 0;  // of one call; below 2^31
  HotScore score = HotScore::kLfu;
};

// Bytes of one row, with its metadata.
constexpr std::size_t HotRowBytes(std::uint32_t dim) { return dim * sizeof(float) + 33; }

class HotRows {
 public:
  virtual ~HotRows() = default;

  // slots[i]: the slot of keys[i] if its version is at least `least`; it is pinned once more. Otherwise kNoSlot, and i
  // is appended to `missing` (room for n) in ascending order; *missing_count is their number.
  virtual void Find(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots, std::uint32_t* missing,
                    std::uint32_t* missing_count) = 0;

  // Assigns a pinned slot, to be filled later, to each i with slots[i] == kNoSlot: first to keys with an older row in
  // the cache, then to the others, each in order of i. slots[i] stays kNoSlot if all slots of the bucket are pinned;
  // such a row is not cached. `least`: as in Find, the minimum version of the rows to come.
  virtual void Insert(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots) = 0;

  // The row in slots[positions[j]] becomes rows[j] (n x dim), of `version`; kNoSlot is skipped. `positions` may be
  // null: slots[j]. Only slots that this batch has inserted.
  virtual void Fill(std::size_t n, const std::uint32_t* positions, const std::uint32_t* slots, const float* rows,
                    Clock version) = 0;

  // out[i] (n x dim) becomes the row in slots[i]; it is unchanged if that is kNoSlot.
  virtual void Read(std::size_t n, const std::uint32_t* slots, float* out) = 0;

  // *oldest becomes the least version of the rows in these slots; ~0 if all are kNoSlot.
  virtual void Oldest(std::size_t n, const std::uint32_t* slots, std::uint64_t* oldest) = 0;

  // Removes one pin of each slot except kNoSlot. A slot may occur at most once. Unpinning a slot that is not pinned is
  // a programming error: on a CPU it aborts the process; on a GPU the kernel traps, and Wait returns the error.
  virtual void Unpin(std::size_t n, const std::uint32_t* slots) = 0;

  // The rows of these keys can no longer be found: their worker has pushed to them, or a pull failed.
  virtual void Evict(std::size_t n, const Key* keys) = 0;
  // The same for the rows of all keys.
  virtual void Clear() = 0;

  // Halves all scores of kLfu.
  virtual void Age() = 0;

  // All slots' rows, capacity() x dim.
  virtual const float* rows() const = 0;
  virtual std::uint64_t capacity() const = 0;
};

// In the host's memory.
std::unique_ptr<HotRows> MakeHotRows(const HotRowsOptions& options);

// In the GPU's memory. kIo: not enough memory; the message has the number of rows that would fit. kInternal: an
// operation failed (Stream::Wait).
Expected<std::unique_ptr<HotRows>> MakeHotRows(Stream& stream, const HotRowsOptions& options);

}  // namespace tarn::kernels

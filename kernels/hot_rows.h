// Rows of one table kept where they are computed with: the hot-row cache of a GPU worker in the GPU's memory, and the
// same cache in the host's, which is the definition of what the other does: the same calls give the same slots.
//
//   auto cache = MakeHotRows(stream, {.dim = 128, .rows = 100'000'000, .batch_keys_max = 600'000});
//   cache->Find(n, keys, least, slots, missing, missing_count);  // rows young enough are pinned
//   cache->Insert(n, keys, least, slots);                        // a pinned place for each of the others
//   cache->Fill(part, positions, slots, rows, version);          // as they arrive: rows of the batch's `positions`
//   ... cache->rows() + slots[i] * dim, or Read ...              // what the batch computes with
//   cache->Unpin(n, slots);                                      // the batch is done
//
// A hash table of buckets of 128 slots. A key's bucket is fixed by its hash; 8 more bits of the hash, its digest, are
// kept apart from the keys, so that one look at 128 bytes finds nearly every key that is not there. A slot is
//   free      no digest, not pinned: the first to be taken
//   kept      a row with its version, of the batches that have it pinned, if any; it may be found
//   detached  no digest, but pinned: cannot be found any more, but those who have it still compute with it; free once
//             the last of them has unpinned it
// A pinned row is never overwritten: a newer one of the same key gets another slot, and the old one is detached.
//
// Which row goes when a bucket is full: of those that are not pinned one that is too old to answer anything, else one
// of the others; of these the one of the lowest score, of equal ones the one in the lowest slot. The score is the
// number of the last batch that looked for the row (kLru), or of how many have since it is here (kLfu), which Age
// halves, so that what was hot once does not stay for ever (as TinyLFU does: Einziger, Friedman, Manes, ACM
// Transactions on Storage 2017). A row that is too old and comes anew goes on with its score.
//
// Staleness: a version is the clock of the shard when it answered: the row holds every push of clocks below. A Find
// names the least version that it may use; what is older counts as missing. A slot that was inserted and not yet
// filled has the version that its Insert asked for, since that is what its pull will bring at least: another batch may
// find it, and orders its use behind the Fill. Who unpins a slot has filled it, or has taken its key out (Evict).
//
// The keys of one call are distinct, at most batch_keys_max. Nothing is allocated after Make. Arrays are in the memory
// of the cache: the GPU's or the host's. The GPU's cache orders everything on the stream that it was made on, which
// outlives it; errors are the stream's (Wait). One thread at a time.
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
  std::uint64_t rows = 0;            // kept at most; rounded down to whole buckets, but one at least; below 2^32 - 1
  std::uint32_t batch_keys_max = 0;  // of one call; below 2^31
  HotScore score = HotScore::kLfu;
};

// Of one row, with what is kept beside it.
constexpr std::size_t HotRowBytes(std::uint32_t dim) { return dim * sizeof(float) + 33; }

class HotRows {
 public:
  virtual ~HotRows() = default;

  // slots[i]: where the row of keys[i] is if its version is at least `least`, pinned once more; else kNoSlot, and i is
  // in `missing` (room for n), in ascending order; *missing_count of them.
  virtual void Find(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots, std::uint32_t* missing,
                    std::uint32_t* missing_count) = 0;

  // For each i with slots[i] == kNoSlot a slot of its own, pinned, whose row is still to be filled; in order of i, but
  // first those of which an older row is here, and kNoSlot where all slots of the bucket are pinned: such a row is not
  // kept. `least` as in Find: the version that the rows will have at least.
  virtual void Insert(std::size_t n, const Key* keys, Clock least, std::uint32_t* slots) = 0;

  // The row in slots[positions[j]] becomes rows[j] (n x dim), of `version`; kNoSlot is passed over. `positions` may be
  // null: slots[j]. Only slots that this batch has inserted.
  virtual void Fill(std::size_t n, const std::uint32_t* positions, const std::uint32_t* slots, const float* rows,
                    Clock version) = 0;

  // out[i] (n x dim) becomes the row in slots[i]; where that is kNoSlot it stays as it is.
  virtual void Read(std::size_t n, const std::uint32_t* slots, float* out) = 0;

  // *oldest becomes the least version of the rows in these slots, ~0 where there is none.
  virtual void Oldest(std::size_t n, const std::uint32_t* slots, std::uint64_t* oldest) = 0;

  // Takes back one pin of each slot but kNoSlot. A slot is named once. One that is not pinned is a programmer's error:
  // it ends the process, or on a GPU all work there, which Wait tells.
  virtual void Unpin(std::size_t n, const std::uint32_t* slots) = 0;

  // The rows of these keys can no longer be found: their worker has pushed to them, or a pull failed.
  virtual void Evict(std::size_t n, const Key* keys) = 0;
  // The same for all.
  virtual void Clear() = 0;

  // Halves all scores of kLfu.
  virtual void Age() = 0;

  // All slots' rows, capacity() x dim.
  virtual const float* rows() const = 0;
  virtual std::uint64_t capacity() const = 0;
};

// In the host's memory.
std::unique_ptr<HotRows> MakeHotRows(const HotRowsOptions& options);

// In the GPU's memory. kIo if it is not there: the message says how many rows would fit.
Expected<std::unique_ptr<HotRows>> MakeHotRows(Stream& stream, const HotRowsOptions& options);

}  // namespace tarn::kernels

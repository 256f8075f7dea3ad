// Rows of one table that a worker has pulled, each with its version, in bounded memory (rules H1 and H2 of
// docs/protocol.md). Internal to worker/; one thread.
//
// A set-associative cache: a key's hash names a set of eight places, whose keys fill one cache line. In a full set the
// new row takes the place of one that is too old to answer anything, else of one that nobody has read since the last
// such choice (second chance), of those the oldest. A row that is read once therefore goes before one that is read
// again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/types.h"

namespace tarn::worker {

class RowCache {
 public:
  // For rows of `dim` values, in `bytes` of memory at most (but for one set at least). rows_max: of a dense table,
  // whose keys are below; where there is room for all of them each has a place of its own.
  RowCache(std::size_t bytes, std::uint32_t dim, std::uint64_t rows_max);

  struct Found {
    std::size_t rows = 0;
    Clock oldest;  // version of those found; without one it means nothing
  };
  // Copies the rows of version >= `least` to their places in `rows` (keys.size() x dim) and appends the places of all
  // others to `missing`, in ascending order.
  Found Read(std::span<const Key> keys, Clock least, float* rows, std::vector<std::uint32_t>* missing);

  // Keeps rows (keys.size() x dim) as they were at `version`, each unless a newer one is here. Rows older than `least`
  // will not be asked for again: they make room first.
  void Keep(std::span<const Key> keys, const float* rows, Clock version, Clock least);

  void Drop(std::span<const Key> keys);
  void Clear();

  std::size_t capacity() const { return sets_.size() * kWays; }
  std::size_t memory_bytes() const { return capacity() * (sizeof(Set) / kWays + dim_ * sizeof(float)); }

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::uint64_t kRead = std::uint64_t{1} << 63;
  // A stamp is 0 where there is no row, else version + 1, with kRead once the row has been read.
  struct alignas(64) Set {
    Key keys[kWays] = {};
    std::uint64_t stamps[kWays] = {};
  };

  std::size_t SetOf(Key key) const;
  static std::size_t WayOf(const Set& set, Key key);  // kWays: the key is not there
  static std::size_t Victim(Set* set, Clock least);
  float* PlaceFor(std::size_t s, Key key, Clock version, Clock least);
  float* RowAt(std::size_t set, std::size_t way) { return rows_.get() + (set * kWays + way) * dim_; }

  std::uint32_t dim_;
  bool all_fit_;
  std::vector<Set> sets_;
  std::unique_ptr<float[]> rows_;  // of all places, set by set
};

}  // namespace tarn::worker

// A cache of pulled rows of one table with their versions, in bounded memory (rules H1 and H2 of docs/protocol.md).
// Internal to worker/; one thread.
//
// The cache is set-associative: a key's hash selects a set of eight ways, whose keys fill one cache line. In a full set
// a new row replaces one that is too old to answer any pull, else the oldest of those whose read flag is not set. A
// read sets the flag of its row; a replacement in a set with all flags set clears them (second chance). So rows that
// are read only once are replaced before rows that are read repeatedly.
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
  // For rows of `dim` values, in at most `bytes` of memory (but at least one set). `rows_max`: number of rows
  // of a dense table. If there is room for all of them, each has its own way.
  RowCache(std::size_t bytes, std::uint32_t dim, std::uint64_t rows_max);

  struct Found {
    std::size_t rows = 0;
    Clock oldest;  // oldest version of the rows found; undefined if there are none
  };
  // Copies the rows of version >= `oldest_version` to `rows` (keys.size() x dim) at the index of their key, and appends
  // the indices of all others to `missing`, ascending.
  Found Read(std::span<const Key> keys, Clock oldest_version, float* rows, std::vector<std::uint32_t>* missing);

  // Stores rows (keys.size() x dim) with `version`, except where a newer row is cached. Rows older than
  // `oldest_version` are never needed again, so they are replaced first.
  void Insert(std::span<const Key> keys, const float* rows, Clock version, Clock oldest_version);

  // Stores the rows of those `keys` that are cached, where the cached row is older or was dropped; adds no key. Returns
  // the number of rows stored.
  std::size_t Renew(std::span<const Key> keys, const float* rows, Clock version);

  // Drops the rows. Their keys stay cached, until other keys need the room, for Renew and AppendKeys.
  void Drop(std::span<const Key> keys);
  void Clear();

  void AppendKeys(std::vector<Key>* keys) const;
  // Changes with the set of cached keys.
  std::uint64_t keys_version() const { return keys_version_; }

  std::size_t capacity() const { return sets_.size() * kWays; }
  std::size_t memory_bytes() const { return capacity() * (sizeof(Set) / kWays + dim_ * sizeof(float)); }

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::uint64_t kRead = std::uint64_t{1} << 63;
  // A stamp is 0 for an empty way, else version + 1, with the flag kRead after a read. That of a dropped row is kRead.
  struct alignas(64) Set {
    Key keys[kWays] = {};
    std::uint64_t stamps[kWays] = {};
  };

  std::size_t SetOf(Key key) const;
  static std::size_t WayOf(const Set& set, Key key);  // kWays: not found
  static std::size_t Victim(Set* set, Clock oldest_version);
  float* PlaceFor(std::size_t s, Key key, Clock version, Clock oldest_version);
  float* RowAt(std::size_t set, std::size_t way) { return rows_.get() + (set * kWays + way) * dim_; }

  std::uint32_t dim_;
  bool all_fit_;
  std::uint64_t keys_version_ = 1;
  std::vector<Set> sets_;
  std::unique_ptr<float[]> rows_;  // of all ways, ordered by set
};

}  // namespace tarn::worker

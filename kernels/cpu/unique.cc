#include "kernels/unique.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/hash.h"

namespace tarn::kernels {
namespace {

constexpr std::size_t kTableMin = 64;
constexpr std::size_t kGroup = 16;  // keys whose cells are prefetched before the first is looked up

// Inserts the n unique keys found so far into the empty table.
void Rebuild(std::span<std::uint32_t> table, const Key* unique, std::size_t n) {
  const std::size_t mask = table.size() - 1;
  for (std::size_t u = 0; u < n; ++u) {
    std::size_t cell = Mix64(unique[u]) & mask;
    while (table[cell] != 0) cell = (cell + 1) & mask;
    table[cell] = static_cast<std::uint32_t>(u) + 1;
  }
}

// The cell of `key`: the one that holds it, or the empty one where it belongs.
std::size_t Probe(std::span<const std::uint32_t> table, const Key* unique, Key key, std::uint64_t hash) {
  const std::size_t mask = table.size() - 1;
  std::size_t cell = hash & mask;
  while (table[cell] != 0 && unique[table[cell] - 1] != key) cell = (cell + 1) & mask;
  return cell;
}

}  // namespace

// The table is sized by the unique keys, not by the occurrences (a batch of click logs repeats most of its keys),
// so that it stays in the cache: it starts at what the last batch needed and doubles when half full.
std::size_t UniqueKeys(std::span<const Key> keys, Key* unique, std::uint32_t* inverse, UniqueScratch& scratch) {
  TARN_CHECK(keys.size() < (std::size_t{1} << 31), "indices have 31 bits");
  const std::size_t expected = std::min(scratch.last_unique_, keys.size());
  std::vector<std::uint32_t>& table = scratch.table_;
  table.assign(std::max(kTableMin, std::bit_ceil(2 * expected + 2 * kGroup)), 0);
  std::size_t n = 0;
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    if (2 * (n + kGroup) > table.size()) {
      table.assign(2 * table.size(), 0);
      Rebuild(table, unique, n);
    }
    const std::size_t count = std::min(kGroup, keys.size() - begin);
    std::uint64_t hashes[kGroup];
    for (std::size_t i = 0; i < count; ++i) {
      hashes[i] = Mix64(keys[begin + i]);
      __builtin_prefetch(&table[hashes[i] & (table.size() - 1)], 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Key key = keys[begin + i];
      std::uint32_t& cell = table[Probe(table, unique, key, hashes[i])];
      if (cell == 0) {
        unique[n++] = key;
        cell = static_cast<std::uint32_t>(n);
      }
      inverse[begin + i] = cell - 1;
    }
  }
  scratch.last_unique_ = n;
  return n;
}

}  // namespace tarn::kernels

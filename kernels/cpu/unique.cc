#include "kernels/unique.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/hash.h"

namespace tarn::kernels {
namespace {

constexpr std::size_t kTableMin = 128;
constexpr std::size_t kGroup = 16;       // keys whose cells are prefetched before the first is looked up
constexpr std::size_t kCellsPerKey = 4;  // at least: with 2, a batch of click logs takes 1.3 times as long

std::size_t TableSize(std::size_t keys) { return std::max(kTableMin, std::bit_ceil(kCellsPerKey * (keys + kGroup))); }

// Inserts the n unique keys found so far into the empty table.
void Rebuild(std::span<std::uint32_t> table, const Key* unique, std::size_t n) {
  const std::size_t mask = table.size() - 1;
  for (std::size_t u = 0; u < n; ++u) {
    std::size_t cell = Mix64(unique[u]) & mask;
    while (table[cell] != 0) cell = (cell + 1) & mask;
    table[cell] = static_cast<std::uint32_t>(u) + 1;
  }
}

}  // namespace

void UniqueScratch::Clear(std::size_t expected) { table_.assign(TableSize(std::min(last_unique_, expected)), 0); }

// The table is sized by the unique keys, not by the occurrences (a batch of click logs repeats most of its keys),
// so that it stays in the cache: it starts at what the last batch needed and doubles when it is a quarter full.
//
// Whether a key is new cannot be predicted, so no branch depends on it: the key is first written to unique[n], and an
// empty cell counts as one that points there. So the key has its cell if what the cell points to is equal; else another
// key has the cell.
std::size_t AddUniqueKeys(std::span<const Key> keys, std::size_t n, Key* unique, std::uint32_t* inverse,
                          UniqueScratch& scratch) {
  TARN_CHECK(n + keys.size() < (std::size_t{1} << 31), "indices have 31 bits");
  std::vector<std::uint32_t>& table = scratch.table_;
  TARN_CHECK(!table.empty(), "the scratch is cleared first");
  for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
    if (kCellsPerKey * (n + kGroup) > table.size()) {
      table.assign(2 * table.size(), 0);
      Rebuild(table, unique, n);
    }
    std::uint32_t* const cells = table.data();
    const std::size_t mask = table.size() - 1;
    const std::size_t count = std::min(kGroup, keys.size() - begin);
    std::size_t homes[kGroup];
    for (std::size_t i = 0; i < count; ++i) {
      homes[i] = Mix64(keys[begin + i]) & mask;
      __builtin_prefetch(&cells[homes[i]], 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Key key = keys[begin + i];
      unique[n] = key;
      const auto next = static_cast<std::uint32_t>(n);
      const auto place_in = [&](std::uint32_t cell) { return cell == 0 ? next : cell - 1; };
      std::size_t at = homes[i];
      while (unique[place_in(cells[at])] != key) [[unlikely]]
        at = (at + 1) & mask;
      const std::uint32_t place = place_in(cells[at]);
      n += cells[at] == 0;
      cells[at] = place + 1;
      inverse[begin + i] = place;
    }
  }
  scratch.last_unique_ = n;
  return n;
}

std::size_t UniqueKeys(std::span<const Key> keys, Key* unique, std::uint32_t* inverse, UniqueScratch& scratch) {
  scratch.Clear(keys.size());
  return AddUniqueKeys(keys, 0, unique, inverse, scratch);
}

}  // namespace tarn::kernels

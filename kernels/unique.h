// Removing duplicate keys of a batch, and knowing for every occurrence which unique key it was.
//
//   UniqueScratch scratch;                                   // kept over batches: nothing is allocated once warm
//   size_t n = UniqueKeys(keys, unique.data(), inverse.data(), scratch);   // unique[inverse[i]] == keys[i]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

namespace tarn::kernels {

class Segments;     // kernels/segments.h
class SortScratch;  // kernels/sort_scratch.h
class Stream;       // kernels/stream.h

// Working memory of UniqueKeys. Has no meaning between calls (but for the size of the last result, which is a
// hint); one thread at a time. It stays as large as the largest batch needed: at most 16 bytes a unique key.
class UniqueScratch {
 private:
  friend std::size_t UniqueKeys(std::span<const Key>, Key*, std::uint32_t*, UniqueScratch&);
  std::vector<std::uint32_t> table_;  // open addressing: 0 or index of the unique key + 1
  std::size_t last_unique_ = 0;
};

// Writes the distinct keys in the order of their first occurrence to `unique`, and for every i the index of
// keys[i] in it to inverse[i]; returns how many there are. `unique` and `inverse` have room for keys.size(), which
// is below 2^31. `unique` may be the array of `keys` itself. Linear time.
std::size_t UniqueKeys(std::span<const Key> keys, Key* unique, std::uint32_t* inverse, UniqueScratch& scratch);

// On a GPU, by sorting: the distinct keys come in ascending order, and how many there are to *n_unique, in device
// memory too. The occurrences of the keys are grouped by their row in `unique` along the way: `segments` are what
// GroupByRow would make of `inverse`. n is within the scratch and within the segments' occurrences and rows. `unique`
// may be the array of `keys` here too.
void UniqueKeys(Stream& stream, std::size_t n, const Key* keys, Key* unique, std::uint32_t* inverse,
                std::uint32_t* n_unique, SortScratch& scratch, Segments& segments);

}  // namespace tarn::kernels

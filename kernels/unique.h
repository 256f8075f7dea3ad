// Removes duplicate keys of a batch and maps every occurrence to its unique key.
//
//   UniqueScratch scratch;                                   // kept across batches: reuses its memory
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

// Where the keys of one result of UniqueKeys and AddUniqueKeys are, and their number as a hint for the next result. One
// thread at a time. Never shrinks: at most 32 bytes per unique key of the largest batch.
class UniqueScratch {
 public:
  // Forgets all keys, before at most `expected` keys are added.
  void Clear(std::size_t expected);

 private:
  friend std::size_t AddUniqueKeys(std::span<const Key>, std::size_t, Key*, std::uint32_t*, UniqueScratch&);
  std::vector<std::uint32_t> table_;  // open addressing: 0 or index of the unique key + 1
  std::size_t last_unique_ = 0;
};

// Writes the distinct keys in the order of their first occurrence to `unique`, and for every i the index of keys[i] in
// it to inverse[i]; returns their number. `unique` and `inverse` have room for keys.size(), which is below 2^31.
// `unique` may be the array of `keys` itself. Linear time.
std::size_t UniqueKeys(std::span<const Key> keys, Key* unique, std::uint32_t* inverse, UniqueScratch& scratch);

// The same for more keys: `unique` has the n distinct keys that were found since `scratch` was cleared, and room for
// keys.size() more. `unique` + n may be the array of `keys` itself.
std::size_t AddUniqueKeys(std::span<const Key> keys, std::size_t n, Key* unique, std::uint32_t* inverse,
                          UniqueScratch& scratch);

// On a GPU, by sorting: `unique` is in ascending order, and *n_unique, also in device memory, is set to their number.
// Also groups the occurrences by their row in `unique`: sets `segments` as GroupByRow would for `inverse`. n is at most
// the scratch's items and the segments' occurrences and rows. `unique` may be the array of `keys` here too.
void UniqueKeys(Stream& stream, std::size_t n, const Key* keys, Key* unique, std::uint32_t* inverse,
                std::uint32_t* n_unique, SortScratch& scratch, Segments& segments);

}  // namespace tarn::kernels

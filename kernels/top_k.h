// Selects the k largest of n floats by magnitude, for sparse gradients. Exact and without sorting: a radix selection
// counts the values by the leading bits of their magnitudes. Any thread, each with a separate scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tarn::kernels {

class SortScratch;  // kernels/sort_scratch.h
class Stream;       // kernels/stream.h

// Working memory of TopK. Holds nothing between calls.
class TopKScratch {
 public:
 private:
  friend void TopK(std::size_t n, std::size_t k, const float* in, std::uint32_t* index, float* values,
                   TopKScratch& scratch);
  std::vector<std::uint32_t> counts_;
};

// index[0..k): positions of the k largest magnitudes, ascending; values[i] = in[index[i]]. Ties are resolved in favour
// of the lower position. A NaN counts as larger than everything, infinity as next. k <= n < 2^31; both may be 0. The
// result depends only on the input.
void TopK(std::size_t n, std::size_t k, const float* in, std::uint32_t* index, float* values, TopKScratch& scratch);

// norms[i]: the Euclidean norm of row i of n x dim floats, by which rows are selected: a sum in double
// (kernels/elementwise.h), rounded once. The norm of a row with a NaN is NaN, with an infinity it is infinity. The same
// bits on every x86-64.
void RowNorms(std::uint32_t dim, std::size_t n, const float* rows, float* norms);

// On a GPU; TopK by sorting. The same results.
void TopK(Stream& stream, std::size_t n, std::size_t k, const float* in, std::uint32_t* index, float* values,
          SortScratch& scratch);
void RowNorms(Stream& stream, std::uint32_t dim, std::size_t n, const float* rows, float* norms);

}  // namespace tarn::kernels

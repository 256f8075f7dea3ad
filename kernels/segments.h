// The occurrences of a batch on a GPU, grouped by row: sorted once per batch, so that every backward pass of the batch
// sums them without atomics and in a fixed order.
//
//   auto scratch = SortScratch::Make(*stream, occurrences_max);
//   auto segments = Segments::Make(*stream, {.occurrences = occurrences_max, .rows = rows_max, .dim = dim_max});
//   UniqueKeys(*stream, n, keys, unique, inverse, n_unique, **scratch, **segments);    // or, if the inverse is known,
//   GroupByRow(*stream, n, inverse, rows, **scratch, **segments);
//   EmbeddingConcatBackward(*stream, samples, fields, dim, grad_out, stride, **segments, grad_rows);
//
// The order of a sum: up to 64 occurrences of a row are added to the output one by one, in the order of the batch; the
// result is bit-identical to the CPU's. With more, each group of 64 consecutive occurrences is summed in order from
// zero, then groups of 64 neighbouring sums are added in order, and so on (kernels/cuda/pieces.h); the total is added
// to the output. The bits depend only on the number of the row's occurrences and their values, not on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "kernels/sort_scratch.h"

namespace tarn::kernels {

// The grouping of the last batch. Used by one thread at a time and by one stream, which outlives it.
class Segments {
 public:
  // The largest batch: occurrences (below 2^31), distinct rows, floats of a row.
  struct Capacity {
    std::size_t occurrences = 0;
    std::size_t rows = 0;
    std::uint32_t dim = 0;
  };
  // Takes about 16 + dim / 8 bytes per occurrence and 8 bytes per row. Starts with an empty batch. kIo: not enough
  // memory.
  static Expected<std::unique_ptr<Segments>> Make(Stream& stream, const Capacity& capacity);
  ~Segments();

  struct Native;  // kernels/cuda/scratch.h
  Native& native() { return *native_; }

 private:
  explicit Segments(std::unique_ptr<Native> native);
  std::unique_ptr<Native> native_;
};

// Groups the occurrences 0 ... n - 1 by inverse[o] < n_rows; n and n_rows are at most those of Make. Rows without
// occurrences are allowed; their gradients are unchanged.
void GroupByRow(Stream& stream, std::size_t n, const std::uint32_t* inverse, std::size_t n_rows, SortScratch& scratch,
                Segments& segments);

}  // namespace tarn::kernels

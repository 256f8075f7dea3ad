// The occurrences of a batch by the row that they name, on a GPU: sorted once a batch, then every backward pass of the
// batch sums along them, without atomics and in a fixed order.
//
//   auto scratch = SortScratch::Make(*stream, occurrences_max);
//   auto segments = Segments::Make(*stream, {.occurrences = occurrences_max, .rows = rows_max, .dim = dim_max});
//   UniqueKeys(*stream, n, keys, unique, inverse, n_unique, **scratch, **segments);    // or, of a known inverse,
//   GroupByRow(*stream, n, inverse, rows, **scratch, **segments);
//   EmbeddingConcatBackward(*stream, samples, fields, dim, grad_out, stride, **segments, grad_rows);
//
// The order of a sum: up to 64 occurrences of a row are added to what is there one by one, in the order of the batch,
// which are the CPU's bits. Of more, every 64 from the first on are summed in order from zero, the sums of 64
// neighbours are added in order, and so on (kernels/cuda/pieces.h); the last one is added to what is there. The bits
// depend on the number of the row's occurrences and their values, and not on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "kernels/sort_scratch.h"

namespace tarn::kernels {

// What a batch was last grouped into. Belongs to one thread at a time and to the work of one stream, which outlives it.
class Segments {
 public:
  // The largest batch: its occurrences (below 2^31), the rows that they may name, the width of a row.
  struct Room {
    std::size_t occurrences = 0;
    std::size_t rows = 0;
    std::uint32_t dim = 0;
  };
  // About 16 bytes and dim / 8 more an occurrence, 8 bytes a row. kIo: not enough memory. Holds an empty batch.
  static Expected<std::unique_ptr<Segments>> Make(Stream& stream, const Room& room);
  ~Segments();

  struct Native;  // kernels/cuda/scratch.h
  Native& native() { return *native_; }

 private:
  explicit Segments(std::unique_ptr<Native> native);
  std::unique_ptr<Native> native_;
};

// Groups the occurrences 0 ... n by inverse[o], each of which is below n_rows; n and n_rows are within the room. Rows
// that none names are allowed: their gradients stay as they are.
void GroupByRow(Stream& stream, std::size_t n, const std::uint32_t* inverse, std::size_t n_rows, SortScratch& scratch,
                Segments& segments);

}  // namespace tarn::kernels

// What a model sees of a batch and of its tables. Pointers are memory of the side that computes
// (worker/models/compute.h): this process's, or a GPU's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/data/batch.h"

namespace tarn::kernels {
class Segments;  // kernels/segments.h
}

namespace tarn::worker {

// Some rows of a batch (worker/data/batch.h), next to each other, or all.
struct BatchView {
  std::size_t rows = 0;
  std::uint32_t fields = 0;                // keys a row, or 0 if it varies
  std::uint32_t dense_columns = 0;         // floats a row in `dense`
  const float* labels = nullptr;           // rows
  const float* dense = nullptr;            // rows x dense_columns
  const std::uint32_t* offsets = nullptr;  // rows + 1, into the occurrences of the whole batch
  const float* weights = nullptr;          // one an occurrence of the whole batch; null: all 1
  std::size_t first = 0;                   // the first row's first occurrence
  std::size_t keys = 0;                    // of the whole batch

  static BatchView Of(const Batch& batch) {
    return {.rows = batch.rows,
            .fields = batch.fields,
            .dense_columns = batch.dense_columns,
            .labels = batch.labels.data(),
            .dense = batch.dense.data(),
            .offsets = batch.offsets.data(),
            .weights = batch.weights.empty() ? nullptr : batch.weights.data(),
            .keys = batch.keys.size()};
  }

  // Rows [begin, begin + count) of it, whose first occurrence is `occurrence`.
  BatchView Slice(std::size_t begin, std::size_t count, std::size_t occurrence) const {
    BatchView slice = *this;
    slice.rows = count;
    slice.labels += begin;
    slice.dense += begin * dense_columns;
    slice.offsets += begin;
    slice.first = occurrence;
    return slice;
  }
};

// One table as one batch sees it. Sparse: rows without duplicates, index[o] says which is the row of occurrence o of
// the whole batch (the bias is the last occurrence). Dense: all rows in order, index is null.
struct TableView {
  const float* rows = nullptr;
  float* gradients = nullptr;  // like rows, zeroed by the caller; null when not training
  const std::uint32_t* index = nullptr;
  // How many rows there are; on a GPU the next power of two, so that the next batches are the same work.
  std::size_t unique = 0;
  // On a GPU, of a sparse table: the occurrences of the rows of the BatchView beside it, without the bias, by row.
  kernels::Segments* segments = nullptr;
};

}  // namespace tarn::worker

// The model's view of a batch and of its tables. Pointers refer to memory of the device (worker/models/compute.h): of
// this process, or of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/data/batch.h"

namespace tarn::kernels {
class Segments;  // kernels/segments.h
}

namespace tarn::worker {

// Consecutive rows of a batch (worker/data/batch.h), or all rows.
struct BatchView {
  std::size_t rows = 0;
  std::uint32_t fields = 0;                // keys per row; 0: it varies
  std::uint32_t dense_columns = 0;         // floats per row in `dense`
  const float* labels = nullptr;           // rows
  const float* dense = nullptr;            // rows x dense_columns
  const std::uint32_t* offsets = nullptr;  // rows + 1, into the occurrences of the whole batch
  const float* weights = nullptr;          // one per occurrence of the whole batch; null: all 1
  std::size_t first = 0;                   // index of the first row's first occurrence
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

  // Rows [begin, begin + count) of this view; their first occurrence is `occurrence`.
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

// A table for one batch. Sparse: rows without duplicates; index[o] is the row of occurrence o of the whole batch (the
// bias is the last occurrence). Dense: all rows in order; index is null.
struct TableView {
  const float* rows = nullptr;
  float* gradients = nullptr;  // like rows, zeroed by the caller; null when not training
  const std::uint32_t* index = nullptr;
  // Number of rows. On a GPU rounded up to a power of two, so that steps of later batches are equal.
  std::size_t unique = 0;
  // On a GPU, for a sparse table: the occurrences in the rows of the BatchView, without the bias, grouped by row.
  kernels::Segments* segments = nullptr;
};

}  // namespace tarn::worker

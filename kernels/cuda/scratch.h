// The internals of the operations' working memory, for kernels/cuda/*.cc.
#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"
#include "kernels/segments.h"
#include "kernels/sort_scratch.h"
#include "kernels/stream.h"

namespace tarn::kernels {

struct SortScratch::Native {
  std::size_t items_max = 0;
  DeviceBuffer identity, keys, words, temp;
  cuda::SortBuffers buffers;  // into them
};

struct Segments::Native {
  Capacity capacity;
  DeviceBuffer occurrences, rows, partials;
  cuda::SegmentsView view;  // into them, with the current batch's number of occurrences
};

}  // namespace tarn::kernels

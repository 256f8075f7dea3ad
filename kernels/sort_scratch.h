// Working memory of the operations that sort on a GPU: UniqueKeys, GroupByRow, GroupByPartition, TopK.
#pragma once

#include <cstddef>
#include <memory>

#include "core/error.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// Holds nothing between calls: all operations of a stream can share one, because they run one after the other. Nothing
// is allocated after Make. One thread at a time; the stream outlives it.
class SortScratch {
 public:
  // For up to items_max items, below 2^31: about 32 bytes each. kIo: not enough memory.
  static Expected<std::unique_ptr<SortScratch>> Make(Stream& stream, std::size_t items_max);
  ~SortScratch();

  struct Native;  // kernels/cuda/scratch.h
  Native& native() { return *native_; }

 private:
  explicit SortScratch(std::unique_ptr<Native> native);
  std::unique_ptr<Native> native_;
};

}  // namespace tarn::kernels

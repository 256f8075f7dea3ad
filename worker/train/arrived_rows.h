// The rows that were pulled for a batch, in the memory of a place. Reused for a later batch, it keeps its memory. One
// thread.
#pragma once

#include "core/buffer.h"
#include "core/types.h"
#include "worker/train/row_place.h"

namespace tarn::worker {

class ArrivedRows {
 public:
  // Begins a batch. `needed`: whether rows will arrive; without any, it is complete.
  void Begin(bool needed) { complete_ = !needed; }
  // Brings the rows to the place. `version`: the least minimum clock among the replies. Errors: see RowPlace::Bring.
  Status Bring(RowPlace* place, Buffer values, Clock version);
  // The rows are not read any more.
  void Release() { values_ = {}; }

  bool complete() const { return complete_; }
  // In the place, until Release; undefined if no rows were needed.
  const float* data() const { return data_; }
  Clock version() const { return version_; }

 private:
  bool complete_ = false;
  Clock version_;
  Buffer values_;  // the rows, if `data_` points there
  const float* data_ = nullptr;
  PlacedRoom room_;
};

}  // namespace tarn::worker

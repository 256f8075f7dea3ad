#include "worker/train/arrived_rows.h"

#include <utility>

namespace tarn::worker {

Status ArrivedRows::Bring(RowPlace* place, Buffer values, Clock version) {
  const void* const pulled = std::as_const(values).data();
  const auto placed = place->Bring(pulled, values.size(), "a batch's pulled rows", &room_);
  if (!placed) return std::unexpected(placed.error());
  data_ = static_cast<const float*>(*placed);
  if (data_ == pulled) values_ = std::move(values);
  version_ = version;
  complete_ = true;
  return {};
}

}  // namespace tarn::worker

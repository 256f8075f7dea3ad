// The columns of a batch on a GPU, copied there through pinned memory. Only in builds with CUDA. One thread at a time.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "core/error.h"
#include "kernels/stream.h"
#include "worker/data/batch.h"
#include "worker/models/views.h"
#include "worker/train/device_memory.h"

namespace tarn::worker {

// An array on the GPU, and pinned memory for copies in either direction.
struct Mirror {
  kernels::DeviceBuffer device;
  kernels::PinnedBuffer host;
  std::size_t bytes = 0;  // of the current contents

  Status Resize(kernels::Stream& stream, std::size_t size, std::string_view what) {
    bytes = size;
    TARN_RETURN_IF_ERROR(Fit(stream, size, what, &host));
    return Fit(stream, size, what, &device);
  }
  void ToDevice(kernels::Stream& stream) { kernels::CopyToDevice(stream, host.data(), bytes, device.data()); }
  void ToHost(kernels::Stream& stream) { kernels::CopyToHost(stream, device.data(), bytes, host.data()); }

  template <typename T>
  Status Bring(kernels::Stream& stream, std::span<const T> items, std::string_view what) {
    TARN_RETURN_IF_ERROR(Resize(stream, items.size_bytes(), what));
    if (!items.empty()) std::memcpy(host.data(), items.data(), items.size_bytes());
    ToDevice(stream);
    return {};
  }
};

class DeviceBatch {
 public:
  // Starts to copy the batch, whose memory may be reused at once. Earlier copies must be complete. kIo: the GPU's
  // memory does not suffice.
  Status Bring(kernels::Stream& stream, const Batch& batch) {
    TARN_RETURN_IF_ERROR(labels_.Bring(stream, std::span<const float>(batch.labels), "a batch's labels"));
    TARN_RETURN_IF_ERROR(dense_.Bring(stream, std::span<const float>(batch.dense), "a batch's dense columns"));
    TARN_RETURN_IF_ERROR(offsets_.Bring(stream, std::span<const std::uint32_t>(batch.offsets), "a batch's rows"));
    TARN_RETURN_IF_ERROR(weights_.Bring(stream, std::span<const float>(batch.weights), "a batch's weights"));
    view_ = BatchView::Of(batch);
    view_.labels = labels_.device.as<float>();
    view_.dense = dense_.device.as<float>();
    view_.offsets = offsets_.device.as<std::uint32_t>();
    view_.weights = batch.weights.empty() ? nullptr : weights_.device.as<float>();
    return {};
  }
  // On the GPU, after the copies.
  const BatchView& view() const { return view_; }

 private:
  Mirror labels_, dense_, offsets_, weights_;
  BatchView view_;
};

}  // namespace tarn::worker

#include <utility>

#include "kernels/rows.h"
#include "kernels/stream.h"
#include "worker/train/row_place.h"

namespace tarn::worker {
namespace {

class DeviceArray final : public PlacedArray {
 public:
  explicit DeviceArray(kernels::DeviceBuffer buffer)
      : PlacedArray(buffer.data(), buffer.size()), buffer_(std::move(buffer)) {}

 private:
  kernels::DeviceBuffer buffer_;
};

class DevicePlace final : public RowPlace {
 public:
  explicit DevicePlace(kernels::Stream* stream) : stream_(stream) {}

  Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) override {
    return kernels::MakeHotRows(*stream_, options);
  }

  Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what) override {
    auto buffer = kernels::DeviceBuffer::Allocate(*stream_, bytes, what);
    if (!buffer) return std::unexpected(buffer.error());
    return std::make_unique<DeviceArray>(std::move(*buffer));
  }

  const void* Bring(const void* host, std::size_t bytes, PlacedArray* array) override {
    kernels::CopyToDevice(*stream_, host, bytes, array->data());
    return array->data();
  }
  void Fetch(const void* placed, std::size_t bytes, void* host) override {
    kernels::CopyToHost(*stream_, placed, bytes, host);
  }
  void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) override {
    kernels::ScatterByIndex(*stream_, dim, n, rows, index, out);
  }
  Status Wait() override { return stream_->Wait(); }

 private:
  kernels::Stream* stream_;
};

}  // namespace

std::unique_ptr<RowPlace> MakeDevicePlace(kernels::Stream* stream) { return std::make_unique<DevicePlace>(stream); }

}  // namespace tarn::worker

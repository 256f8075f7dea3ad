#include <cstring>
#include <utility>
#include <vector>

#include "kernels/rows.h"
#include "kernels/stream.h"
#include "worker/train/row_place.h"

namespace tarn::worker {
namespace {

using kernels::DeviceBuffer;
using kernels::PinnedBuffer;

// Pinned memory of destroyed arrays, which copies may still use; freed by the next Wait.
using RetiredBuffers = std::vector<PinnedBuffer>;

class DeviceArray final : public PlacedArray {
 public:
  DeviceArray(DeviceBuffer buffer, PinnedBuffer pinned, RetiredBuffers* retired)
      : PlacedArray(buffer.data(), buffer.size(), pinned.as<std::byte>()),
        buffer_(std::move(buffer)),
        pinned_(std::move(pinned)),
        retired_(*retired) {}
  ~DeviceArray() override {
    if (pinned_.size() != 0) retired_.push_back(std::move(pinned_));
  }
  PinnedBuffer& pinned() { return pinned_; }

 private:
  DeviceBuffer buffer_;
  PinnedBuffer pinned_;
  RetiredBuffers& retired_;
};

class DevicePlace final : public RowPlace {
 public:
  DevicePlace(int gpu, std::unique_ptr<kernels::Stream> stream) : gpu_(gpu), stream_(std::move(stream)) {}
  ~DevicePlace() override { (void)Wait(); }

  std::optional<int> gpu() const override { return gpu_; }

  Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) override {
    return kernels::MakeHotRows(*stream_, options);
  }

  Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what,
                                                  Exchanged exchanged) override {
    auto buffer = DeviceBuffer::Allocate(*stream_, bytes, what);
    if (!buffer) return std::unexpected(std::move(buffer).error());
    PinnedBuffer pinned;
    if (exchanged == Exchanged::kYes) {
      auto got = PinnedBuffer::Allocate(*stream_, bytes, what);
      if (!got) return std::unexpected(std::move(got).error());
      pinned = std::move(*got);
    }
    return std::make_unique<DeviceArray>(std::move(*buffer), std::move(pinned), &retired_);
  }

  Expected<const void*> Bring(const void* host, std::size_t bytes, std::string_view what, PlacedRoom* room) override {
    TARN_RETURN_IF_ERROR(room->Reserve(this, bytes, what, Exchanged::kYes));
    PlacedArray* const array = room->array();
    void* const pinned = static_cast<DeviceArray*>(array)->pinned().data();
    if (bytes != 0) std::memcpy(pinned, host, bytes);
    kernels::CopyToDevice(*stream_, pinned, bytes, array->data());
    return array->data();
  }
  void Fetch(PlacedArray* array, std::size_t offset, std::size_t bytes) override {
    std::byte* const pinned = static_cast<DeviceArray*>(array)->pinned().as<std::byte>();
    kernels::CopyToHost(*stream_, static_cast<const std::byte*>(array->data()) + offset, bytes, pinned + offset);
  }
  void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) override {
    kernels::ScatterByIndex(*stream_, dim, n, rows, index, out);
  }
  Status Wait() override {
    Status status = stream_->Wait();
    retired_.clear();
    return status;
  }
  void HandOver(kernels::Stream* user) override { user->WaitFor(*stream_); }

 private:
  int gpu_;
  std::unique_ptr<kernels::Stream> stream_;
  RetiredBuffers retired_;
};

}  // namespace

Expected<std::unique_ptr<RowPlace>> MakeDevicePlace(int gpu) {
  auto stream = kernels::Stream::Make(gpu);
  if (!stream) return std::unexpected(std::move(stream).error());
  return std::make_unique<DevicePlace>(gpu, std::move(*stream));
}

}  // namespace tarn::worker

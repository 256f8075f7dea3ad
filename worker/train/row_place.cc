#include "worker/train/row_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "core/buffer.h"
#include "kernels/rows.h"

namespace tarn::worker {
namespace {

class HostArray final : public PlacedArray {
 public:
  explicit HostArray(Buffer bytes) : PlacedArray(bytes.data(), bytes.size(), bytes.data()), bytes_(std::move(bytes)) {}

 private:
  Buffer bytes_;
};

Error TooLarge(std::size_t bytes, std::string_view what) {
  return {ErrorCode::kTooLarge, fmt::format("{}: this machine has no memory for {} bytes", what, bytes)};
}

// Memory of this machine that is available without swapping; the maximum value if unknown.
std::size_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::size_t kib = 0; file >> name >> kib >> unit;)
    if (name == "MemAvailable:") return kib << 10;
  return std::numeric_limits<std::size_t>::max();
}

class HostPlace final : public RowPlace {
 public:
  std::optional<int> gpu() const override { return std::nullopt; }
  Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) override {
    const std::size_t bytes = options.rows * kernels::HotRowBytes(options.dim);
    // Checks first, because the system does not reject large allocations but later kills processes, and not always this
    // one.
    if (bytes > AvailableBytes()) return std::unexpected(TooLarge(bytes, "hot rows"));
    try {
      return kernels::MakeHotRows(options);
    } catch (const std::exception&) {  // std::bad_alloc, or the maximum size of a vector is exceeded
      return std::unexpected(TooLarge(bytes, "hot rows"));
    }
  }

  Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what, Exchanged) override {
    try {
      return std::make_unique<HostArray>(Buffer::Allocate(bytes));
    } catch (const std::bad_alloc&) {
      return std::unexpected(TooLarge(bytes, what));
    }
  }

  Expected<const void*> Bring(const void* host, std::size_t, std::string_view, PlacedRoom*) override { return host; }
  void Fetch(PlacedArray*, std::size_t, std::size_t) override {}
  void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) override {
    kernels::ScatterByIndex(dim, n, rows, index, out);
  }
  Status Wait() override { return {}; }
  void HandOver(kernels::Stream*) override {}
};

std::size_t WithRoom(std::size_t bytes) { return std::max<std::size_t>(bytes + bytes / 4, 1); }

}  // namespace

Expected<std::unique_ptr<RowPlace>> MakePlace([[maybe_unused]] std::optional<int> gpu) {
#if TARN_HAS_CUDA
  if (gpu) return MakeDevicePlace(*gpu);
#endif
  return MakeHostPlace();
}

std::unique_ptr<RowPlace> MakeHostPlace() { return std::make_unique<HostPlace>(); }

Status PlacedRoom::Reserve(RowPlace* place, std::size_t bytes, std::string_view what, Exchanged exchanged) {
  if (array_ != nullptr && array_->size() >= bytes) return {};
  array_.reset();
  auto array = place->Allocate(WithRoom(bytes), what, exchanged);
  if (!array && bytes != 0) array = place->Allocate(bytes, what, exchanged);
  if (!array) return std::unexpected(std::move(array).error());
  array_ = std::move(*array);
  return {};
}

}  // namespace tarn::worker

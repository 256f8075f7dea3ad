#include "worker/train/row_place.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "kernels/rows.h"

namespace tarn::worker {
namespace {

class HostArray final : public PlacedArray {
 public:
  HostArray(std::unique_ptr<std::byte[]> bytes, std::size_t size)
      : PlacedArray(bytes.get(), size), bytes_(std::move(bytes)) {}

 private:
  std::unique_ptr<std::byte[]> bytes_;
};

Error TooLarge(std::size_t bytes, std::string_view what) {
  return {ErrorCode::kTooLarge, fmt::format("{}: this machine has no memory for {} bytes", what, bytes)};
}

class HostPlace final : public RowPlace {
 public:
  Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) override {
    try {
      return kernels::MakeHotRows(options);
    } catch (const std::exception&) {  // std::bad_alloc, or more than a vector may ever hold
      return std::unexpected(TooLarge(options.rows * kernels::HotRowBytes(options.dim), "hot rows"));
    }
  }

  Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what) override {
    try {
      return std::make_unique<HostArray>(std::make_unique_for_overwrite<std::byte[]>(bytes), bytes);
    } catch (const std::bad_alloc&) {
      return std::unexpected(TooLarge(bytes, what));
    }
  }

  const void* Bring(const void* host, std::size_t, PlacedArray*) override { return host; }
  void Fetch(const void* placed, std::size_t bytes, void* host) override {
    if (bytes != 0) std::memcpy(host, placed, bytes);
  }
  void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) override {
    kernels::ScatterByIndex(dim, n, rows, index, out);
  }
  Status Wait() override { return {}; }
};

}  // namespace

std::unique_ptr<RowPlace> MakeHostPlace() { return std::make_unique<HostPlace>(); }

}  // namespace tarn::worker

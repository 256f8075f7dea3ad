#include "bench/gpu_bench/place.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <system_error>

#include "core/hash.h"

namespace tarn::bench {

Expected<std::unique_ptr<Place>> Place::Make(std::string_view device) {
  std::unique_ptr<kernels::Stream> stream;
  int number = 0;
  if (device != "cpu") {
    const char* const end = device.data() + device.size();
    const auto is_number = [&] {
      const auto [at, error] = std::from_chars(device.data() + 4, end, number);
      return at == end && error == std::errc() && number >= 0;
    };
    if (device != "gpu" && (!device.starts_with("gpu:") || !is_number()))
      return Fail(ErrorCode::kInvalidArgument, fmt::format("device \"{}\": expected cpu, gpu or gpu:N", device));
    auto made = kernels::Stream::Make(number);
    if (!made) return std::unexpected(std::move(made).error());
    stream = std::move(*made);
  }
  return std::unique_ptr<Place>(new Place(number, std::move(stream)));
}

Array Place::Allocate(std::size_t bytes, std::string_view what) {
  if (!on_gpu()) return Array(Buffer::Allocate(bytes));
  return Array(ValueOrDie(kernels::DeviceBuffer::Allocate(*stream_, bytes, what)));
}

Array Place::AllocateOnHost(std::size_t bytes, std::string_view what) {
  if (!on_gpu()) return Array(Buffer::Allocate(bytes));
  return Array(ValueOrDie(kernels::PinnedBuffer::Allocate(*stream_, bytes, what)));
}

Array Place::Floats(std::size_t n, std::string_view what, float scale) {
  // Repeats one block, because generating all numbers would take longer than the measurement.
  std::vector<float> block(std::min(n, std::size_t{1} << 20));
  SplitMix random(n);
  for (float& v : block) v = scale * static_cast<float>(random.Unit() * 2 - 1);
  Array array = Allocate(n * sizeof(float), what);
  for (std::size_t at = 0; at < n; at += block.size())
    Upload(block.data(), std::min(block.size(), n - at) * sizeof(float), array.as<float>() + at);
  Wait();
  return array;
}

std::byte* Place::Staging() {
  if (staging_.size() == 0)
    staging_ = ValueOrDie(kernels::PinnedBuffer::Allocate(*stream_, kStagingBytes, "copies from and to the host"));
  return staging_.as<std::byte>();
}

void Place::Upload(const void* host, std::size_t bytes, void* placed) {
  if (!on_gpu() && bytes != 0) std::memcpy(placed, host, bytes);
  for (std::size_t at = 0; on_gpu() && at < bytes; at += kStagingBytes) {
    const std::size_t n = std::min(kStagingBytes, bytes - at);
    std::memcpy(Staging(), static_cast<const std::byte*>(host) + at, n);
    kernels::CopyToDevice(*stream_, Staging(), n, static_cast<std::byte*>(placed) + at);
    Wait();
  }
}

void Place::UploadPinned(const Array& host, std::size_t bytes, void* placed) {
  if (on_gpu())
    kernels::CopyToDevice(*stream_, host.as<void>(), bytes, placed);
  else if (bytes != 0)
    std::memcpy(placed, host.as<void>(), bytes);
}

void Place::DownloadBytes(const void* placed, std::size_t bytes, void* host) {
  if (!on_gpu() && bytes != 0) std::memcpy(host, placed, bytes);
  for (std::size_t at = 0; on_gpu() && at < bytes; at += kStagingBytes) {
    const std::size_t n = std::min(kStagingBytes, bytes - at);
    kernels::CopyToHost(*stream_, static_cast<const std::byte*>(placed) + at, n, Staging());
    Wait();
    std::memcpy(static_cast<std::byte*>(host) + at, Staging(), n);
  }
}

std::unique_ptr<kernels::HotRows> Place::MakeHotRows(const kernels::HotRowsOptions& options) {
#if TARN_HAS_CUDA
  if (on_gpu()) return ValueOrDie(kernels::MakeHotRows(*stream_, options));
#endif
  return kernels::MakeHotRows(options);
}

Grouping::Grouping([[maybe_unused]] Place& place, [[maybe_unused]] std::size_t occurrences,
                   [[maybe_unused]] std::uint32_t dim) {
#if TARN_HAS_CUDA
  if (!place.on_gpu()) return;
  sort_ = ValueOrDie(kernels::SortScratch::Make(*place.stream(), occurrences));
  segments_ = ValueOrDie(kernels::Segments::Make(*place.stream(), {occurrences, occurrences, dim}));
#endif
}

void Place::Wait() {
  if (!on_gpu()) return;
  if (const Status status = stream_->Wait(); !status) Die(status.error().message);
}

}  // namespace tarn::bench

// The device of gpu_bench: a GPU or the CPU (the calling thread). Both have the same operations (kernels/), so that the
// benchmark can be tested with small sizes on a CPU. Not thread-safe. Make returns an error; any other failure ends
// the process with a line on stderr.
//
//   auto place = ValueOrDie(Place::Make("gpu"));
//   Array x = place->Floats(n, "x");
//   const double seconds = SecondsOf(*place, {}, [&] {
//     place->Run([&](auto&... on) { kernels::Relu(on..., n, x.as<float>()); });
//   });
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/data_plane/measure.h"
#include "core/buffer.h"
#include "kernels/hot_rows.h"
#include "kernels/segments.h"
#include "kernels/sort_scratch.h"
#include "kernels/stream.h"

namespace tarn::bench {

// Memory of a place, or pinned host memory. The place outlives it.
class Array {
 public:
  Array() = default;
  explicit Array(Buffer host) : host_(std::move(host)), data_(host_.data()) {}
  explicit Array(kernels::DeviceBuffer device) : device_(std::move(device)), data_(device_.data()) {}
  explicit Array(kernels::PinnedBuffer pinned) : pinned_(std::move(pinned)), data_(pinned_.data()) {}

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Buffer host_;
  kernels::DeviceBuffer device_;
  kernels::PinnedBuffer pinned_;
  void* data_ = nullptr;
};

class Place {
 public:
  // `device`: "cpu", "gpu" or "gpu:N". kInvalidArgument: any other; else errors of kernels::Stream::Make.
  static Expected<std::unique_ptr<Place>> Make(std::string_view device);

  bool on_gpu() const { return stream_ != nullptr; }
  int gpu() const { return gpu_; }  // number of the GPU; 0 on the CPU
  // The stream of all operations; null on the CPU.
  kernels::Stream* stream() const { return stream_.get(); }
  // Name of the device in the output.
  std::string name() const { return on_gpu() ? stream_->device_name() : "cpu"; }

  // Uninitialized memory. `what` names it in the error if there is no room.
  Array Allocate(std::size_t bytes, std::string_view what);
  // The same in host memory, pinned if the place is a GPU.
  Array AllocateOnHost(std::size_t bytes, std::string_view what);
  // Makes n random numbers between -scale and scale, which repeat after 2^20.
  Array Floats(std::size_t n, std::string_view what, float scale = 1.0f);
  // Copies `items` into new memory.
  template <typename T>
  Array Upload(const std::vector<T>& items, std::string_view what) {
    Array array = Allocate(items.size() * sizeof(T), what);
    Upload(static_cast<const void*>(items.data()), items.size() * sizeof(T), static_cast<void*>(array.as<T>()));
    return array;
  }
  // Copies from and to any host memory through pinned memory, because a GPU copies pageable memory synchronously. The
  // copy is complete on return.
  void Upload(const void* host, std::size_t bytes, void* placed);
  // Copies from memory of AllocateOnHost, which must not change before the next Wait. Does not wait.
  void UploadPinned(const Array& host, std::size_t bytes, void* placed);
  template <typename T>
  std::vector<T> Download(const T* placed, std::size_t n) {
    std::vector<T> items(n);
    DownloadBytes(placed, n * sizeof(T), items.data());
    return items;
  }
  std::unique_ptr<kernels::HotRows> MakeHotRows(const kernels::HotRowsOptions& options);
  // Waits until all operations are complete. Ends the process if one has failed.
  void Wait();

  // Calls op(), or on a GPU op(stream).
  template <typename Op>
  void Run(Op op) {
#if TARN_HAS_CUDA
    if (on_gpu()) return op(*stream_);
#endif
    op();
  }

 private:
  Place(int gpu, std::unique_ptr<kernels::Stream> stream) : gpu_(gpu), stream_(std::move(stream)) {}
  void DownloadBytes(const void* placed, std::size_t bytes, void* host);
  // The pinned memory for copies of pageable memory, allocated on first use.
  std::byte* Staging();

  static constexpr std::size_t kStagingBytes = std::size_t{8} << 20;
  int gpu_;
  std::unique_ptr<kernels::Stream> stream_;
  kernels::PinnedBuffer staging_;
};

// Returns the value of `made`; after an error ends the process with the message.
template <typename T>
T ValueOrDie(Expected<T> made) {
  if (!made) Die(made.error().message);
  return std::move(*made);
}

// The memory in which a GPU groups the occurrences of a batch by row. Empty on the CPU, which does not need it.
class Grouping {
 public:
  Grouping(Place& place, std::size_t occurrences, std::uint32_t dim);
  kernels::SortScratch& sort() const { return *sort_; }
  kernels::Segments& segments() const { return *segments_; }

 private:
  // shared_ptr, because builds without CUDA do not have the destructors.
  std::shared_ptr<kernels::SortScratch> sort_;
  std::shared_ptr<kernels::Segments> segments_;
};

struct Timing {
  double seconds = 0.3;  // approximate time per figure
  std::size_t repetitions = 5;
};

// The median over repetitions of the seconds per call. Many calls are queued at once, so launch costs overlap with the
// previous call. The first three calls do not count, because they load and measure algorithms.
template <typename Call>
double SecondsOf(Place& place, const Timing& timing, Call call) {
  call(), call();
  place.Wait();
  double begin = Now();
  call();
  place.Wait();
  const double share = timing.seconds / double(timing.repetitions);
  const auto calls = std::size_t(std::clamp(std::ceil(share / (Now() - begin)), 1.0, 2000.0));
  std::vector<double> times;
  for (std::size_t r = 0; r < timing.repetitions; ++r) {
    begin = Now();
    for (std::size_t i = 0; i < calls; ++i) call();
    place.Wait();
    times.push_back((Now() - begin) / double(calls));
  }
  return Quantile(&times, 0.5);
}

}  // namespace tarn::bench

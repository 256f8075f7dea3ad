// Where gpu_bench computes: on a GPU, or on this thread. The operations of kernels/ are the same on both; on this
// thread, with small sizes, they show that the benchmark works where there is no GPU. One thread; what fails ends the
// process with a line on stderr.
//
//   auto place = Place::Make("gpu");
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

// Memory of a place, or of the host as the GPU likes it. The place outlives it.
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
  // "cpu", "gpu" or "gpu:N". kUnavailable, kUnsupported: there is no such GPU.
  static Expected<std::unique_ptr<Place>> Make(std::string_view device);

  bool on_gpu() const { return stream_ != nullptr; }
  int gpu() const { return gpu_; }  // its number, if it is one
  // Null on this thread.
  kernels::Stream* stream() const { return stream_.get(); }
  // What figures say of where they were measured.
  std::string name() const { return on_gpu() ? stream_->device_name() : "cpu"; }

  Array Allocate(std::size_t bytes, std::string_view what);
  Array AllocateOnHost(std::size_t bytes, std::string_view what);
  // n numbers between -scale and scale.
  Array Floats(std::size_t n, std::string_view what, float scale = 1.0f);
  template <typename T>
  Array Bring(const std::vector<T>& items, std::string_view what) {
    Array array = Allocate(items.size() * sizeof(T), what);
    Bring(items.data(), items.size() * sizeof(T), array.as<T>());
    return array;
  }
  // From and to any memory of the host, by way of pinned memory: a GPU copies other memory only while somebody waits.
  // Done when it returns.
  void Bring(const void* host, std::size_t bytes, void* placed);
  // From memory of AllocateOnHost, which stays as it is until Wait.
  void BringFrom(const Array& host, std::size_t bytes, void* placed);
  template <typename T>
  std::vector<T> Fetch(const T* placed, std::size_t n) {
    std::vector<T> items(n);
    FetchBytes(placed, n * sizeof(T), items.data());
    return items;
  }
  std::unique_ptr<kernels::HotRows> MakeHotRows(const kernels::HotRowsOptions& options);
  // Until all that was asked for is done.
  void Wait();

  // op(), or on a GPU op(stream): the leading argument of the operations there.
  template <typename Op>
  void Run(Op op) {
#if TARN_HAS_CUDA
    if (on_gpu()) return op(*stream_);
#endif
    op();
  }

 private:
  Place(int gpu, std::unique_ptr<kernels::Stream> stream) : gpu_(gpu), stream_(std::move(stream)) {}
  void FetchBytes(const void* placed, std::size_t bytes, void* host);
  // The pinned memory through which other memory is copied, made when it is asked for.
  std::byte* Staging();

  static constexpr std::size_t kStagingBytes = std::size_t{8} << 20;
  int gpu_;
  std::unique_ptr<kernels::Stream> stream_;
  kernels::PinnedBuffer staging_;
};

// `made`, or the end of the process with what went wrong.
template <typename T>
T Need(Expected<T> made) {
  if (!made) Die(made.error().message);
  return std::move(*made);
}

// What groups the occurrences of a batch by row on a GPU. Empty on this thread, which needs nothing of the kind.
class Grouping {
 public:
  Grouping(Place& place, std::size_t occurrences, std::uint32_t dim);
  kernels::SortScratch& sort() const { return *sort_; }
  kernels::Segments& segments() const { return *segments_; }

 private:
  // Not unique_ptr: builds without CUDA have no destructors of them.
  std::shared_ptr<kernels::SortScratch> sort_;
  std::shared_ptr<kernels::Segments> segments_;
};

struct Timing {
  double seconds = 0.3;  // about, of a figure
  std::size_t repetitions = 5;
};

// The median over the repetitions of the seconds that one call takes, with many calls given to the place at once: what
// a call costs to begin is hidden behind the one before. The first three do not count: they load and measure
// algorithms.
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

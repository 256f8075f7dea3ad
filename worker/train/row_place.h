// The memory in which a worker caches hot rows and computes with them: the host's or a GPU's. It hides all differences
// between the two from the pipeline. A place belongs to one thread and outlives the objects that it made.
//
// On a GPU all operations use the place's own stream, so that waiting for them does not wait for computations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "kernels/hot_rows.h"

namespace tarn::kernels {
class Stream;
}  // namespace tarn::kernels

namespace tarn::worker {

// An array in the memory of a place. Its destructor frees the memory.
class PlacedArray {
 public:
  virtual ~PlacedArray() = default;
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  // For an exchanged array: host memory of the same size, for fetched bytes.
  const std::byte* host() const { return host_; }

 protected:
  PlacedArray(void* data, std::size_t size, std::byte* host) : data_(data), size_(size), host_(host) {}

 private:
  void* data_;
  std::size_t size_;
  std::byte* host_;
};

// Whether bytes are copied between an array and the host's memory.
enum class Exchanged : std::uint8_t { kNo, kYes };

class PlacedRoom;

class RowPlace {
 public:
  virtual ~RowPlace() = default;

  // The GPU of the place; nullopt: the host's memory.
  virtual std::optional<int> gpu() const = 0;
  // kIo, kTooLarge: not enough memory.
  virtual Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) = 0;
  virtual Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what,
                                                          Exchanged exchanged) = 0;

  // Makes host bytes available in the place and returns their address there. On a GPU, copies them to `room`, which it
  // enlarges if needed; the caller may reuse the bytes at once. On the host, returns `host`; the bytes must stay
  // unchanged while they are used. At most one call per room between two Waits. kIo: not enough memory; the message
  // names `what`.
  virtual Expected<const void*> Bring(const void* host, std::size_t bytes, std::string_view what, PlacedRoom* room) = 0;
  // Copies bytes [offset, offset + bytes) of the array to array->host(); complete after Wait.
  virtual void Fetch(PlacedArray* array, std::size_t offset, std::size_t bytes) = 0;
  // kernels::ScatterByIndex.
  virtual void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) = 0;
  // Waits until all operations are complete. kInternal: an operation has failed.
  virtual Status Wait() = 0;
  // Operations submitted from now on to `user`, a stream of the same GPU, run after all operations of the place so far.
  // Does not block. In a host place `user` is null, and the call does nothing.
  virtual void HandOver(kernels::Stream* user) = 0;
};

// Makes a place on that GPU; nullopt, or a build without CUDA: in the host's memory. Fails if the GPU cannot be used.
Expected<std::unique_ptr<RowPlace>> MakePlace(std::optional<int> gpu);

std::unique_ptr<RowPlace> MakeHostPlace();
// In builds with CUDA. Exchanged arrays use pinned memory.
Expected<std::unique_ptr<RowPlace>> MakeDevicePlace(int gpu);

// An array that grows to the largest requested size, and by a quarter more, because batches vary in size.
class PlacedRoom {
 public:
  // Makes room for `bytes`. Growing discards the contents. Errors are those of RowPlace::Allocate.
  Status Reserve(RowPlace* place, std::size_t bytes, std::string_view what, Exchanged exchanged = Exchanged::kNo);

  PlacedArray* array() const { return array_.get(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(array_->data());
  }
  template <typename T>
  const T* host() const {
    return reinterpret_cast<const T*>(array_->host());
  }

 private:
  std::unique_ptr<PlacedArray> array_;
};

}  // namespace tarn::worker

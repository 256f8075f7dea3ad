// Where a worker keeps rows and computes with them: the host's memory or a GPU's. All that a pipeline with hot rows
// does differently on the two goes through here. A place belongs to one thread and outlives what it made.
//
// On a GPU everything is ordered on a stream of the place's own: who waits for the place waits for no computation.
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

// Memory of a place, freed with it.
class PlacedArray {
 public:
  virtual ~PlacedArray() = default;
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  // Of an array that is exchanged: as many bytes of the host's memory, for what is fetched.
  const std::byte* host() const { return host_; }

 protected:
  PlacedArray(void* data, std::size_t size, std::byte* host) : data_(data), size_(size), host_(host) {}

 private:
  void* data_;
  std::size_t size_;
  std::byte* host_;
};

// Whether bytes come into an array from the host's memory, or go there.
enum class Exchanged : std::uint8_t { kNo, kYes };

class PlacedRoom;

class RowPlace {
 public:
  virtual ~RowPlace() = default;

  // None: the host's memory.
  virtual std::optional<int> gpu() const = 0;
  // kIo, kTooLarge: there is not so much memory.
  virtual Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) = 0;
  virtual Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what,
                                                          Exchanged exchanged) = 0;

  // Where these bytes of the host are in the place: in `room`, made large enough, and are free at once; or where they
  // are: then they stay as they are as long as they are used. A room is brought into once between two Waits. kIo: there
  // is not so much memory; the message says for `what`.
  virtual Expected<const void*> Bring(const void* host, std::size_t bytes, std::string_view what, PlacedRoom* room) = 0;
  // Bytes [offset, offset + bytes) of the array are there in array->host() after Wait.
  virtual void Fetch(PlacedArray* array, std::size_t offset, std::size_t bytes) = 0;
  // kernels::ScatterByIndex.
  virtual void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) = 0;
  // Until all that was asked for is done. kInternal: something has failed.
  virtual Status Wait() = 0;
  // What `user` is given from now on, a stream of the same GPU, is done behind all that was asked for so far; nobody
  // waits here. In the host's memory: null, and nothing to do.
  virtual void HandOver(kernels::Stream* user) = 0;
};

// On that GPU; none: in the host's memory. Errors are the GPU's: it cannot be used.
Expected<std::unique_ptr<RowPlace>> MakePlace(std::optional<int> gpu);

std::unique_ptr<RowPlace> MakeHostPlace();
// In builds with CUDA. What is exchanged goes through pinned memory.
Expected<std::unique_ptr<RowPlace>> MakeDevicePlace(int gpu);

// An array as large as was last asked for or a little larger, since batches differ a little in size.
class PlacedRoom {
 public:
  // What it held is lost if it grows.
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

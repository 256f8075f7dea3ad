// Where a worker keeps rows and computes with them: the host's memory or a GPU's. All that a pipeline with hot rows
// does differently on the two goes through here. A place belongs to one thread and outlives what it made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

 protected:
  PlacedArray(void* data, std::size_t size) : data_(data), size_(size) {}

 private:
  void* data_;
  std::size_t size_;
};

class RowPlace {
 public:
  virtual ~RowPlace() = default;

  // kIo, kTooLarge: there is not so much memory.
  virtual Expected<std::unique_ptr<kernels::HotRows>> MakeHotRows(const kernels::HotRowsOptions& options) = 0;
  virtual Expected<std::unique_ptr<PlacedArray>> Allocate(std::size_t bytes, std::string_view what) = 0;

  // Where these bytes of the host are in the place: in `array`, which they fit into, or where they are. They stay as
  // they are as long as they are used.
  virtual const void* Bring(const void* host, std::size_t bytes, PlacedArray* array) = 0;
  // They are there after Wait.
  virtual void Fetch(const void* placed, std::size_t bytes, void* host) = 0;
  // kernels::ScatterByIndex.
  virtual void Scatter(std::uint32_t dim, std::size_t n, const float* rows, const std::uint32_t* index, float* out) = 0;
  // Until all that was asked for is done. kInternal: something has failed.
  virtual Status Wait() = 0;
};

std::unique_ptr<RowPlace> MakeHostPlace();

// In builds with CUDA. Everything is ordered on the stream, which outlives the place. HotTable waits for it while it
// looks for rows: a stream that computes too would have it wait for that.
std::unique_ptr<RowPlace> MakeDevicePlace(kernels::Stream* stream);

}  // namespace tarn::worker

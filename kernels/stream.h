// Work on a GPU. A stream is a queue of operations that the GPU executes in order, asynchronously to the caller: an
// operation of kernels/ whose first parameter is a Stream returns at once, and its pointers are device memory. Without
// CUDA in the build, Make returns an error.
//
//   auto stream = Stream::Make();                                   // kUnavailable: no GPU here
//   auto x = DeviceBuffer::Allocate(**stream, n * 4, "the batch");
//   CopyToDevice(**stream, values.data(), n * 4, x->data());
//   Relu(**stream, n, x->as<float>());
//   CopyToHost(**stream, x->data(), n * 4, values.data());
//   Status status = (*stream)->Wait();                              // done, or the first error
//
// One thread at a time may use a stream and its buffers, not necessarily the one that made them. An operation selects
// the stream's GPU for the calling thread (cudaSetDevice), so a thread may use streams of several GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn::kernels {

class Stream {
 public:
  // On device `device`, counted as CUDA does. kUnsupported: built without CUDA. kUnavailable: no such GPU, it is older
  // than compute capability 8.0, its driver does not support this build, or cuBLAS is not found
  // (kernels/cuda_libraries.h); the message says which.
  static Expected<std::unique_ptr<Stream>> Make(int device = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits until all submitted operations are complete. kInternal: names the first operation that failed since the last
  // call, with CUDA's reason; or work is being recorded (kernels/graph.h). After an error of the device (an address out
  // of bounds) every call fails.
  Status Wait();

  // Operations submitted from now on run after all operations submitted so far to `other`, a stream of the same GPU.
  // Only the GPU waits, not the caller. Failures of `other` are failures of this stream, too.
  void WaitFor(Stream& other);

  // Whether all operations submitted before the last NotifyWhenDone (without one: all operations) are complete, or the
  // GPU has failed.
  bool Done();
  // Calls *callback on a driver thread when all operations submitted so far are complete; Done returns true from then
  // on. *callback must stay valid until then and must not use a GPU. If the GPU fails, it may never be called.
  void NotifyWhenDone(const std::function<void()>* callback);

  // The GPU's number, counted as CUDA does.
  int device() const;
  std::string device_name() const;
  // Free memory of the GPU, including freed memory that this process keeps for reuse.
  std::size_t free_bytes() const;

  struct Native;  // kernels/cuda/native.h
  // For operations: selects the stream's GPU for the calling thread.
  Native& native();

 private:
  explicit Stream(std::unique_ptr<Native> native);
  std::unique_ptr<Native> native_;
};

// Memory of the GPU. The destructor frees it after the operations submitted to the stream. The stream outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // kIo: not enough memory, or work is being recorded (kernels/graph.h); the message names `what`, the requested bytes
  // and those that are free.
  static Expected<DeviceBuffer> Allocate(Stream& stream, std::size_t bytes, std::string_view what);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* data() { return data_; }
  std::size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  Stream* stream_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Pinned host memory, which the GPU reads and writes asynchronously; copies from and to other host memory block. The
// stream outlives it, and all operations that use it are complete (Wait) before its destruction.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // kIo: the driver cannot allocate it, or work is being recorded; the message names `what` and the requested bytes.
  static Expected<PinnedBuffer> Allocate(Stream& stream, std::size_t bytes, std::string_view what);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  void* data() { return data_; }
  std::size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  Stream* stream_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Counts of all streams of this process, to compare with predictions.
struct DeviceUse {
  // CUDA calls, submitted one by one or recorded: launches, copies, events, waits and frees. cuBLASLt's are not
  // counted.
  std::uint64_t operations = 0;
  std::uint64_t graphs = 0;  // launched
  std::uint64_t copies = 0, bytes_to_device = 0, bytes_to_host = 0, bytes_within = 0;
  std::uint64_t waits = 0;        // of the host
  std::uint64_t allocations = 0;  // of the GPU's memory
};
DeviceUse DeviceUseSoFar();

// Executed in the order of the stream. The host's memory may be reused after Wait.
void CopyToDevice(Stream& stream, const void* host, std::size_t bytes, void* device);
void CopyToHost(Stream& stream, const void* device, std::size_t bytes, void* host);
// From one place of the GPU's memory to another; they do not overlap.
void CopyOnDevice(Stream& stream, const void* from, std::size_t bytes, void* to);

}  // namespace tarn::kernels

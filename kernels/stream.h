// Work on a GPU. A stream is a queue of operations that the GPU does one after the other, beside the caller: an
// operation of kernels/ that takes a Stream first returns at once, and its pointers are device memory. Built with or
// without CUDA; without, Make says so.
//
//   auto stream = Stream::Make();                                   // kUnavailable: no GPU here
//   auto x = DeviceBuffer::Allocate(**stream, n * 4, "the batch");
//   CopyToDevice(**stream, values.data(), n * 4, x->data());
//   Relu(**stream, n, x->as<float>());
//   CopyToHost(**stream, x->data(), n * 4, values.data());
//   Status status = (*stream)->Wait();                              // done, or what went wrong first
//
// A stream and its buffers belong to one thread at a time, whichever made them. An operation makes the stream's GPU the
// calling thread's (cudaSetDevice), so that a thread may use streams of several.
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
  // than compute capability 8.0, its driver does not serve this build, or cuBLAS is not where it is looked for
  // (kernels/cuda_libraries.h); the message says which.
  static Expected<std::unique_ptr<Stream>> Make(int device = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits until everything given to the stream is done. kInternal: the first operation that failed since the last call,
  // by its name, with CUDA's reason. After an error of the device (an address out of bounds) every call fails.
  Status Wait();

  // What this stream is given from now on is done behind what `other`, of the same GPU, has been given so far: the GPU
  // waits, nobody else. What has failed there has failed here too.
  void WaitFor(Stream& other);

  // Whether all that the stream was given before the last Tell is done, or if there was none, all; or the GPU has
  // failed.
  bool Done();
  // Calls *told, on a thread of the driver's, once all that the stream has been given so far is done, which Done says
  // from then on. It stays until then and uses no GPU. When the GPU fails it may never be called.
  void Tell(const std::function<void()>* told);

  // Counted as CUDA does.
  int device() const;
  std::string device_name() const;
  // Of the GPU's memory, that which nobody has: also what this process has given back and keeps for later.
  std::size_t free_bytes() const;

  struct Native;  // kernels/cuda/native.h
  // For operations: from here on the calling thread's GPU is the stream's.
  Native& native();

 private:
  explicit Stream(std::unique_ptr<Native> native);
  std::unique_ptr<Native> native_;
};

// Memory of the GPU; freed when it goes, behind the work that the stream has been given. The stream outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // kIo: not enough memory; the message names `what`, the bytes asked for and those that are free.
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

// Memory of the host that the GPU reads and writes by itself, beside the caller: copies from and to other memory wait.
// The stream outlives it, and is done with it (Wait) before it goes.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // kIo: the driver does not give so much; the message names `what` and the bytes asked for.
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

// What the streams of this process have been given so far, to compare with what was predicted.
struct DeviceUse {
  std::uint64_t operations = 0;  // given one by one or recorded, copies too
  std::uint64_t graphs = 0;      // launched
  std::uint64_t copies = 0, bytes_to_device = 0, bytes_to_host = 0, bytes_within = 0;
  std::uint64_t waits = 0;        // of the host
  std::uint64_t allocations = 0;  // of the GPU's memory
};
DeviceUse DeviceUseSoFar();

// In the order of the stream. The host's memory may be used again after Wait.
void CopyToDevice(Stream& stream, const void* host, std::size_t bytes, void* device);
void CopyToHost(Stream& stream, const void* device, std::size_t bytes, void* host);
// From one place of the GPU's memory to another; they do not overlap.
void CopyOnDevice(Stream& stream, const void* from, std::size_t bytes, void* to);

}  // namespace tarn::kernels

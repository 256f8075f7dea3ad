#include "kernels/stream.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/gemm_state.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/native.h"

namespace tarn::kernels {

Stream::Native::Native() = default;

Stream::Native::~Native() {
  Use();
  gemm.reset();
  if (workspace != nullptr) Release(workspace);
  if (blas != nullptr) cublasLtDestroy(blas);
  if (given != nullptr) cudaEventDestroy(given);
  if (notified != nullptr) cudaEventDestroy(notified);
  if (stream != nullptr) cudaStreamDestroy(stream);
  cudaGetLastError();  // clears the error of a failed call
}

void Stream::Native::Use() {
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != device) Note(cudaSetDevice(device), "use the GPU");
}

void Stream::Native::UsePool() {
  int has = 0;
  if (cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported, device) != cudaSuccess || has == 0 ||
      cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess)
    pool = nullptr;
  std::uint64_t kept = std::numeric_limits<std::uint64_t>::max();
  if (pool != nullptr) cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept);
  cudaGetLastError();  // clears the error of a failed call; without a pool allocations are slower
}

cudaError_t Stream::Native::Allocate(std::size_t bytes, void** memory) {
  use.allocations.fetch_add(1, std::memory_order_relaxed);
  const auto allocate = [&] {
    return pool != nullptr ? cudaMallocFromPoolAsync(memory, bytes, pool, stream) : cudaMalloc(memory, bytes);
  };
  cudaError_t error = allocate();
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    if (cudaStreamSynchronize(stream) == cudaSuccess && (pool == nullptr || cudaMemPoolTrimTo(pool, 0) == cudaSuccess))
      error = allocate();
  }
  if (error != cudaSuccess) *memory = nullptr;
  return error;
}

cudaError_t Stream::Native::Release(void* memory) {
  return pool != nullptr ? cudaFreeAsync(memory, stream) : cudaFree(memory);
}

std::string Stream::Native::NoMemory(std::string_view what, std::size_t bytes, cudaError_t error) const {
  cudaGetLastError();
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return fmt::format("no memory for {}: {} bytes asked for, {} of {} free: {}", what, bytes, free, total,
                     cudaGetErrorString(error));
}

namespace {

constexpr int kCapabilityMin = 8;  // the oldest that cmake/cuda.cmake compiles for

// CUDA reports the same error for a missing driver and for one that is too old.
std::string WhyNoGpus(cudaError_t error) {
  int driver = 0;  // the version it supports, as 1000 major + 10 minor; 0: no driver
  if (error != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver) != cudaSuccess)
    return cudaGetErrorString(error);
  if (driver == 0) return "NVIDIA's driver is missing";
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  return fmt::format("the driver supports CUDA {}, this build needs CUDA {}", version(driver), version(CUDART_VERSION));
}

// The reason why our kernels cannot run on the calling thread's GPU; empty if they can.
std::string WhyNoKernels(int device) {
  int major = 0, minor = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error == cudaSuccess && major < kCapabilityMin)
    return fmt::format("compute capability {}.{}, expected {}.0 or newer", major, minor, kCapabilityMin);
  if (error == cudaSuccess) error = cuda::FindKernels();
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  return cudaGetErrorString(error);
}

}  // namespace

Expected<std::unique_ptr<Stream>> Stream::Make(int device) {
  const auto unavailable = [device](std::string_view what, std::string_view why) {
    cudaGetLastError();  // clears the error, because streams of other GPUs continue
    return Fail(ErrorCode::kUnavailable, fmt::format("GPU {}: cannot {}: {}", device, what, why));
  };
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess)
    return unavailable("find GPUs", WhyNoGpus(error));
  if (device < 0 || device >= devices)
    return Fail(ErrorCode::kUnavailable,
                fmt::format("GPU {}: no such GPU: this machine has {}, numbered from 0", device, devices));
  if (const Status loaded = LoadCublasLt(); !loaded) return unavailable("load cuBLAS", loaded.error().message);
  auto native = std::make_unique<Native>();
  native->device = device;
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess)
    return unavailable("select it", cudaGetErrorString(error));
  if (const std::string why = WhyNoKernels(device); !why.empty()) return unavailable("run this build's kernels", why);
  if (const cudaError_t error = cudaStreamCreateWithFlags(&native->stream, cudaStreamNonBlocking); error != cudaSuccess)
    return unavailable("make a stream", cudaGetErrorString(error));
  if (const cudaError_t error = cudaEventCreateWithFlags(&native->given, cudaEventDisableTiming); error != cudaSuccess)
    return unavailable("make an event", cudaGetErrorString(error));
  native->UsePool();
  native->gemm = std::make_unique<GemmState>(native.get());
  return std::unique_ptr<Stream>(new Stream(std::move(native)));
}

Stream::Stream(std::unique_ptr<Native> native) : native_(std::move(native)) {}
Stream::~Stream() = default;

Stream::Native& Stream::native() {
  native_->Use();
  return *native_;
}

Status Stream::Wait() {
  if (native_->Refuses("it waits"))
    return Fail(ErrorCode::kInternal, "work that is being recorded cannot be waited for");
  native_->Use();
  Native::use.waits.fetch_add(1, std::memory_order_relaxed);
  native_->Note(cudaStreamSynchronize(native_->stream), "the submitted work");
  if (native_->failed == nullptr) return {};
  const char* failed = std::exchange(native_->failed, nullptr);
  return Fail(ErrorCode::kInternal,
              fmt::format("GPU {}: {}: {}", native_->device, failed, std::exchange(native_->reason, {})));
}

// The event can be reused at once: a wait refers to the work at the time of the call.
void Stream::WaitFor(Stream& other) {
  Native& first = *other.native_;
  if (first.failed != nullptr) native_->Note(first.reason, first.failed);
  native_->Note(cudaEventRecord(first.given, first.stream), "record an event");
  native_->Note(cudaStreamWaitEvent(native_->stream, first.given, 0), "wait for another stream");
}

bool Stream::Done() {
  native_->Use();
  const cudaError_t state =
      native_->notified != nullptr ? cudaEventQuery(native_->notified) : cudaStreamQuery(native_->stream);
  if (state != cudaErrorNotReady) return true;
  cudaGetLastError();  // not an error, but CUDA keeps it as one
  return false;
}

void Stream::NotifyWhenDone(const std::function<void()>* callback) {
  const auto call = [](void* function) { (*static_cast<const std::function<void()>*>(function))(); };
  native_->Use();
  // Done queries an event, because the stream itself counts as busy while the function runs.
  if (native_->notified == nullptr)
    native_->Note(cudaEventCreateWithFlags(&native_->notified, cudaEventDisableTiming), "make an event");
  native_->Note(cudaEventRecord(native_->notified, native_->stream), "record an event");
  native_->Note(cudaLaunchHostFunc(native_->stream, call, const_cast<std::function<void()>*>(callback)),
                "call a function");
}

int Stream::device() const { return native_->device; }

std::string Stream::device_name() const {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, native_->device) == cudaSuccess ? properties.name : "unknown";
}

std::size_t Stream::free_bytes() const {
  native_->Use();
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  std::uint64_t kept = 0, used = 0;  // by the pool
  if (native_->pool == nullptr ||
      cudaMemPoolGetAttribute(native_->pool, cudaMemPoolAttrReservedMemCurrent, &kept) != cudaSuccess ||
      cudaMemPoolGetAttribute(native_->pool, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess)
    return free;
  return free + (kept - used);
}

namespace {

std::unexpected<Error> NotWhileRecording(std::string_view what, std::size_t bytes) {
  return Fail(ErrorCode::kIo, fmt::format("no memory for {}: {} bytes asked for while work is recorded", what, bytes));
}

}  // namespace

Expected<DeviceBuffer> DeviceBuffer::Allocate(Stream& stream, std::size_t bytes, std::string_view what) {
  DeviceBuffer buffer;
  buffer.stream_ = &stream;
  buffer.size_ = bytes;
  if (bytes == 0) return buffer;
  Stream::Native& native = stream.native();
  if (native.Refuses("it allocates memory")) return NotWhileRecording(what, bytes);
  ++native.memory_version;
  const cudaError_t error = native.Allocate(bytes, &buffer.data_);
  if (error == cudaSuccess) return buffer;
  return Fail(ErrorCode::kIo, fmt::format("GPU {}: {}", native.device, native.NoMemory(what, bytes, error)));
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  Stream::Native& native = stream_->native();
  TARN_CHECK(!native.recording, "memory is not freed while work is recorded");
  ++native.memory_version;
  native.Note(native.Release(data_), "freeing memory");
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : stream_(other.stream_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Expected<PinnedBuffer> PinnedBuffer::Allocate(Stream& stream, std::size_t bytes, std::string_view what) {
  PinnedBuffer buffer;
  buffer.stream_ = &stream;
  if (bytes == 0) return buffer;
  Stream::Native& native = stream.native();
  if (native.Refuses("it allocates pinned memory")) return NotWhileRecording(what, bytes);
  ++native.memory_version;
  if (const cudaError_t error = cudaMallocHost(&buffer.data_, bytes); error != cudaSuccess) {
    buffer.data_ = nullptr;
    cudaGetLastError();
    return Fail(ErrorCode::kIo, fmt::format("GPU {}: no pinned host memory for {}: {} bytes asked for: {}",
                                            native.device, what, bytes, cudaGetErrorString(error)));
  }
  buffer.size_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  Stream::Native& native = stream_->native();
  TARN_CHECK(!native.recording, "memory is not freed while work is recorded");
  ++native.memory_version;
  native.Note(cudaFreeHost(data_), "freeing pinned memory");
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : stream_(other.stream_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceUse DeviceUseSoFar() {
  const auto& u = Stream::Native::use;
  return {u.operations, u.graphs, u.copies, u.bytes_to_device, u.bytes_to_host, u.bytes_within, u.waits, u.allocations};
}

void CopyToDevice(Stream& stream, const void* host, std::size_t bytes, void* device) {
  if (bytes == 0) return;
  Stream::Native::use.Copy(&Stream::Native::use.bytes_to_device, bytes);
  Stream::Native& native = stream.native();
  native.Note(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, native.stream), "copy to the device");
}

void CopyToHost(Stream& stream, const void* device, std::size_t bytes, void* host) {
  if (bytes == 0) return;
  Stream::Native::use.Copy(&Stream::Native::use.bytes_to_host, bytes);
  Stream::Native& native = stream.native();
  native.Note(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, native.stream), "copy to the host");
}

void CopyOnDevice(Stream& stream, const void* from, std::size_t bytes, void* to) {
  if (bytes == 0) return;
  Stream::Native::use.Copy(&Stream::Native::use.bytes_within, bytes);
  Stream::Native& native = stream.native();
  native.Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, native.stream), "copy within the device");
}

}  // namespace tarn::kernels

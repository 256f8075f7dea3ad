// What rewritten kernels and their launches call: see README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

namespace emulated {

dim3 ThreadIndex();
dim3 BlockIndex();
dim3 BlockExtent();
dim3 GridExtent();
unsigned Lane();
void* DynamicShared();
void SyncThreads();
[[noreturn]] void Trap();
unsigned long long AtomicMin(unsigned long long* at, unsigned long long value);
std::uint16_t HalfOf(float v);
float FloatOf(std::uint16_t half);

// What the lanes of a mask do together. All of them must come, with the same mask and for the same.
enum class Meeting { kSync, kBallot, kMax, kShuffle };
std::uint64_t Meet(unsigned mask, Meeting what, std::uint64_t value, unsigned lane);

template <typename T>
T Shuffle(unsigned mask, T value, unsigned lane) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = Meet(mask, Meeting::kShuffle, bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// What a GPU would not do, or not do reliably: says so on stderr and ends the process.
[[noreturn]] void Violation(const std::string& what);

// In a kernel: that it is aligned as what it points to.
void CheckAligned(const void* memory, std::size_t alignment);
template <typename T, typename U>
T* Cast(U* p) {
  CheckAligned(p, alignof(T));
  return reinterpret_cast<T*>(p);
}

// Work of a library on a stream.
cudaError_t Enqueue(const char* name, cudaStream_t stream, std::function<void()> work);
// That so many bytes are of one array of the GPU that is there; `write`: they are written.
void CheckDevice(const void* memory, std::size_t bytes, bool write, const char* who);

// A kernel, as its template arguments make it, once it is in the program.
struct Kernel {
  explicit Kernel(const char* name);
  const char* name;                                                            // with what it was called by
  const char* where = nullptr;                                                 // its launch; null: there was none
  std::uint64_t launches = 0, threads = 0, read_bytes = 0, written_bytes = 0;  // as its threads asked
  std::uint64_t touched_bytes = 0;                                             // every word once a launch
};

struct Config {
  dim3 grid, block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};

// A kernel with its arguments.
struct Body {
  virtual ~Body() = default;
  virtual void Run() const = 0;
  std::size_t bytes = 0;  // of the object, which all threads read
};
template <typename F>
struct BodyOf final : Body {
  explicit BodyOf(F function) : f(std::move(function)) { bytes = sizeof *this; }
  void Run() const override { f(); }
  F f;
};
template <typename Call>
struct Site {
  static const char* Name() { return __PRETTY_FUNCTION__; }
  static inline Kernel kernel{Name()};
};

void Enqueue(Kernel* kernel, const void* function, const Config& config, std::shared_ptr<const Body> body);

template <typename Call, typename... Arguments>
void Launch(const char* where, const void* function, const Config& config, Call call, Arguments... arguments) {
  Kernel& kernel = Site<Call>::kernel;
  kernel.where = where;
  const auto run = [call, arguments...] { call(arguments...); };
  Enqueue(&kernel, function, config, std::make_shared<BodyOf<decltype(run)>>(run));
}

}  // namespace emulated

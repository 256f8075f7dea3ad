// The functions that rewritten kernels and launches call; see README.md.
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

// A joint operation of the lanes of a mask. All of them must call it, with the same mask and operation.
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

// Reports an operation that would fail or be unreliable on a GPU, on stderr, and ends the process.
[[noreturn]] void Violation(const std::string& what);

// Ends the process if the address, in a kernel, is not aligned.
void CheckAligned(const void* memory, std::size_t alignment);
template <typename T, typename U>
T* Cast(U* p) {
  CheckAligned(p, alignof(T));
  return reinterpret_cast<T*>(p);
}

// Adds work of a library to a stream.
cudaError_t Enqueue(const char* name, cudaStream_t stream, std::function<void()> work);
// Ends the process unless the bytes lie in one existing array of the GPU. `write`: they will be written.
void CheckDevice(const void* memory, std::size_t bytes, bool write, const char* who);

// A kernel of the program, one for each set of template arguments.
struct Kernel {
  explicit Kernel(const char* name);
  const char* name;             // with the names of the functions around its launch
  const char* where = nullptr;  // file and line of its launch; null: not launched yet
  std::uint64_t launches = 0, threads = 0, read_bytes = 0, written_bytes = 0;  // counted for each access
  std::uint64_t touched_bytes = 0;                                             // each word counts once per launch
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
  std::size_t bytes = 0;  // size of the object, which all threads read
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

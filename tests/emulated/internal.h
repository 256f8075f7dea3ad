// The parts of the emulation to each other.
#pragma once

#include <cstdint>

#include "tests/emulated/kernel.h"

namespace emulated {

// A thread of the block that runs, as accesses are judged.
struct Actor {
  Kernel* kernel = nullptr;
  std::uint32_t launch = 0, block = 0;
  std::uint16_t thread = 0, barriers = 0, meetings = 0;  // counts of its block and its warp
  const char *stack = nullptr, *stack_end = nullptr;
  const char *body = nullptr, *body_end = nullptr;
};
// That which runs on this thread of the host; null: none.
extern thread_local Actor* actor;

// blocks.cc: runs a kernel to its end, or to a trap: then false.
bool RunKernel(Kernel* kernel, const Config& config, const Body& body);
// memory.cc: before a thread of a kernel waits or ends.
void SettleAccess();
// The shared memory whose size the launch says.
void* SharedMemory();
// What is in it is no number, until the block writes. (A read of a __shared__ array before is a violation.)
void ForgetSharedMemory(std::size_t bytes);

// memory.cc. Reserved: nobody may touch it until it is Born, in the order of its stream.
void* Reserve(std::size_t bytes);
void Born(void* memory);
void Dead(void* memory);
bool IsWithin(const void* memory, std::size_t bytes);  // one that is reserved
std::size_t BytesInUse();
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMemoryBytes = std::size_t{1} << 30;
#else
constexpr std::size_t kMemoryBytes = std::size_t{40} << 30;  // of which only what is touched is there
#endif
constexpr std::size_t kPinnedMax = std::size_t{1} << 30;
constexpr std::size_t kSharedMax = 227 << 10, kSharedUnasked = 48 << 10;

std::uint64_t Random();  // under the lock of the device
const std::string& NameOf(const Kernel& kernel);

}  // namespace emulated

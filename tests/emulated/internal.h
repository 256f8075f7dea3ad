// Declarations that the parts of the emulation share.
#pragma once

#include <cstdint>

#include "tests/emulated/kernel.h"

namespace emulated {

// The running thread of the current block, for the check of its accesses.
struct Actor {
  Kernel* kernel = nullptr;
  std::uint32_t launch = 0, block = 0;
  std::uint16_t thread = 0, barriers = 0, meetings = 0;  // counts of its block and its warp
  const char *stack = nullptr, *stack_end = nullptr;
  const char *body = nullptr, *body_end = nullptr;
};
// The one that runs on this host thread; null: none.
extern thread_local Actor* actor;

// blocks.cc: runs a kernel to its end. Returns false if it trapped.
bool RunKernel(Kernel* kernel, const Config& config, const Body& body);
// memory.cc: must be called before a thread of a kernel waits or ends.
void SettleAccess();
// The shared memory whose size the launch determines.
void* SharedMemory();
// Fills it with NaNs for the next block. (A read of a __shared__ array before a write is a violation.)
void ForgetSharedMemory(std::size_t bytes);

// memory.cc. Reserved memory must not be accessed until its stream executes Born.
void* Reserve(std::size_t bytes);
void Born(void* memory);
void Dead(void* memory);
bool IsWithin(const void* memory, std::size_t bytes);  // of one reserved array
std::size_t BytesInUse();
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMemoryBytes = std::size_t{1} << 30;
#else
constexpr std::size_t kMemoryBytes = std::size_t{40} << 30;  // address space; only touched pages take memory
#endif
constexpr std::size_t kPinnedMax = std::size_t{1} << 30;
constexpr std::size_t kSharedMax = 227 << 10, kSharedUnasked = 48 << 10;

std::uint64_t Random();  // the caller holds the device's lock
const std::string& NameOf(const Kernel& kernel);

}  // namespace emulated

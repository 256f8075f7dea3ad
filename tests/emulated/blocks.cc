// Blocks of threads: each thread of a block is a fiber, which runs until it waits for others or ends. Threads run in a
// random order, and blocks run one after the other, also in a random order. memory.cc detects accesses that would race
// on a GPU.
#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tests/emulated/internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers and the stack pointer, and continues on another stack where it was left.
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch, .-emulated_switch
)");

namespace emulated {

thread_local Actor* actor = nullptr;

namespace {

constexpr unsigned kThreadsMax = 1024, kWarp = 32;
constexpr std::size_t kStackBytes = (64 << 10) + 17 * 64;  // no power of two: the tops of many share a cache

struct Thread {
  Actor as;
  void* sp = nullptr;
  unsigned index = 0;
  dim3 at;
  std::uint64_t value = 0, result = 0;
  unsigned lane = 0;  // the lane whose value it requests
  bool done = false;
};

// A wait for the lanes of a mask.
struct Gathering {
  unsigned mask = 0, arrived = 0;
  Meeting what = Meeting::kSync;
};

// The running block. Only one runs at a time, because kernels run under the device's lock.
struct Block {
  Kernel* kernel = nullptr;
  const Body* body = nullptr;
  dim3 grid, block, at;
  unsigned size = 0, at_barrier = 0, done = 0;
  bool trapped = false;
  std::array<Thread, kThreadsMax> threads;
  std::array<std::array<Gathering, 64>, kThreadsMax / kWarp> gatherings;  // one for each mask in use
  std::vector<unsigned> ready, next;
  Thread* running = nullptr;
  void* scheduler_sp = nullptr;
  char* stacks = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  void* scheduler_fake = nullptr;
  const void* scheduler_stack = nullptr;
  std::size_t scheduler_stack_bytes = 0;
#endif
};
Block& block = *new Block;
std::uint32_t launches = 0;

void ToScheduler(bool for_ever) {
  Thread& self = *block.running;
  SettleAccess();
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake, block.scheduler_stack, block.scheduler_stack_bytes);
  emulated_switch(&self.sp, block.scheduler_sp);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  (void)for_ever;
  emulated_switch(&self.sp, block.scheduler_sp);
#endif
}

void ThreadMain() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_stack, &block.scheduler_stack_bytes);
#endif
  block.body->Run();
  block.running->done = true;
  ++block.done;
  ToScheduler(true);
  std::abort();
}

void Resume(unsigned index) {
  Thread& thread = block.threads[index];
  block.running = &thread;
  actor = &thread.as;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&block.scheduler_fake, thread.as.stack, kStackBytes);
  emulated_switch(&block.scheduler_sp, thread.sp);
  __sanitizer_finish_switch_fiber(block.scheduler_fake, nullptr, nullptr);
#else
  emulated_switch(&block.scheduler_sp, thread.sp);
#endif
  actor = nullptr;
}

void Prepare(unsigned index, std::uint32_t number) {
  Thread& thread = block.threads[index];
  thread.index = index;
  thread.done = false;
  thread.at = {index % block.block.x, index / block.block.x % block.block.y, index / block.block.x / block.block.y};
  char* const stack = block.stacks + std::size_t{index} * kStackBytes;
#if defined(__SANITIZE_ADDRESS__)
  // The previous thread's frames never returned, so their AddressSanitizer poison is still on the stack.
  if (auto* const before = static_cast<char*>(thread.sp); before != nullptr)
    __asan_unpoison_memory_region(before, static_cast<std::size_t>(stack + kStackBytes - before));
#endif
  auto* top = reinterpret_cast<void**>(stack + kStackBytes) - 1;  // 8 below a multiple of 16, as after a call
  *top = nullptr;
  *--top = reinterpret_cast<void*>(&ThreadMain);
  top -= 6;
  std::fill_n(top, 6, nullptr);
  thread.sp = top;
  const auto* body = reinterpret_cast<const char*>(block.body);
  thread.as = {block.kernel,
               launches,
               number,
               static_cast<std::uint16_t>(index),
               0,
               0,
               stack,
               stack + kStackBytes,
               body,
               body + block.body->bytes};
}

template <typename T>
void Shuffled(std::vector<T>* items) {
  for (std::size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[Random() % i]);
}

[[noreturn]] void Stuck() {
  std::string waiting;
  unsigned shown = 0;
  for (unsigned i = 0; i < block.size; ++i)
    if (!block.threads[i].done && shown++ < 4) waiting += " " + std::to_string(i);
  Violation(NameOf(*block.kernel) + ": threads" + waiting + " ... of a block of " + std::to_string(block.size) +
            " wait for others that do not come (" + std::to_string(block.done) + " have ended, " +
            std::to_string(block.at_barrier) + " are at a barrier)");
}

bool RunBlock(std::uint32_t number) {
  block.at = {number % block.grid.x, number / block.grid.x % block.grid.y, number / block.grid.x / block.grid.y};
  block.at_barrier = block.done = 0;
  for (unsigned warp = 0; warp * kWarp < block.size; ++warp)
    for (Gathering* g = block.gatherings[warp].data(); g->mask != 0; ++g) *g = {};
  block.ready.resize(block.size);
  std::iota(block.ready.begin(), block.ready.end(), 0u);
  for (unsigned i = 0; i < block.size; ++i) Prepare(i, number);
  while (block.done < block.size) {
    if (block.ready.empty()) Stuck();
    Shuffled(&block.ready);
    block.next.clear();
    for (const unsigned index : block.ready) {
      Resume(index);
      if (block.trapped) return false;
    }
    block.ready.swap(block.next);
  }
  return true;
}

}  // namespace

bool RunKernel(Kernel* kernel, const Config& config, const Body& body) {
  if (block.stacks == nullptr)
    block.stacks = static_cast<char*>(mmap(nullptr, kThreadsMax * kStackBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ++launches;
  ++kernel->launches;
  block.kernel = kernel;
  block.body = &body;
  block.grid = config.grid;
  block.block = config.block;
  block.size = config.block.x * config.block.y * config.block.z;
  block.trapped = false;
  kernel->threads += block.size * (std::uint64_t{config.grid.x} * config.grid.y * config.grid.z);
  std::vector<std::uint32_t> order(std::size_t{config.grid.x} * config.grid.y * config.grid.z);
  std::iota(order.begin(), order.end(), 0u);
  Shuffled(&order);
  const unsigned modes = _mm_getcsr();
  _mm_setcsr(modes | 0x8040);  // subnormals are zero, like with nvcc's --ftz=true
  bool well = true;
  for (const std::uint32_t number : order) {
    ForgetSharedMemory(config.shared);
    well = well && RunBlock(number);
  }
  _mm_setcsr(modes);
  return well;
}

dim3 ThreadIndex() { return block.running->at; }
dim3 BlockIndex() { return block.at; }
dim3 BlockExtent() { return block.block; }
dim3 GridExtent() { return block.grid; }
unsigned Lane() { return block.running->index % kWarp; }

void* DynamicShared() { return SharedMemory(); }

void Trap() {
  block.trapped = true;
  ToScheduler(true);
  std::abort();
}

void SyncThreads() {
  ++block.at_barrier;
  if (block.at_barrier + block.done == block.size && block.done != 0) Stuck();
  if (block.at_barrier < block.size) {
    ToScheduler(false);
    return;
  }
  block.at_barrier = 0;
  for (unsigned i = 0; i < block.size; ++i) {
    ++block.threads[i].as.barriers;
    if (&block.threads[i] != block.running) block.next.push_back(i);
  }
  SettleAccess();
}

std::uint64_t Meet(unsigned mask, Meeting what, std::uint64_t value, unsigned lane) {
  Thread& self = *block.running;
  const unsigned mine = Lane(), warp = self.index / kWarp, first = warp * kWarp;
  if ((mask >> mine & 1) == 0) Violation(NameOf(*block.kernel) + ": a lane is not in the mask that it names");
  if (what == Meeting::kShuffle && (mask >> lane & 1) == 0)
    Violation(NameOf(*block.kernel) + ": a value is asked of a lane that is not in the mask");
  Gathering& gathering = *std::ranges::find_if(block.gatherings[warp],
                                               [mask](const Gathering& g) { return g.mask == mask || g.mask == 0; });
  gathering.mask = mask;
  if (gathering.arrived == 0) gathering.what = what;
  if (gathering.what != what) Violation(NameOf(*block.kernel) + ": lanes of a warp meet for different things");
  self.value = value;
  self.lane = lane;
  gathering.arrived |= 1u << mine;
  if (gathering.arrived != mask) {
    ToScheduler(false);
    return self.result;
  }
  gathering.arrived = 0;
  std::uint64_t together = 0;
  for (unsigned l = 0; l < kWarp; ++l)
    if (mask >> l & 1) {
      const Thread& thread = block.threads[first + l];
      if (what == Meeting::kBallot) together |= std::uint64_t{thread.value != 0} << l;
      if (what == Meeting::kMax) together = std::max(together, thread.value);
    }
  for (unsigned l = 0; l < kWarp; ++l)
    if (mask >> l & 1) {
      Thread& thread = block.threads[first + l];
      ++thread.as.meetings;
      thread.result = what == Meeting::kShuffle ? block.threads[first + thread.lane].value : together;
      if (&thread != &self) block.next.push_back(thread.index);
    }
  SettleAccess();
  return self.result;
}

}  // namespace emulated

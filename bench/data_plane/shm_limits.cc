// The limit of shared memory between two processes: the sender copies into a ring of slots, the receiver out of it.
// Both spin.
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

#include "bench/data_plane/child.h"
#include "bench/data_plane/limits.h"

namespace tarn::bench {
namespace {

constexpr std::size_t kSlotBytes = std::size_t{256} << 10;
constexpr std::size_t kSlots = 8;
constexpr int kSpinsUntilYield = 1 << 10;  // then yields, because both processes may share one core

// A one-way channel. `written` and `read` count slots and are never reset.
struct Ring {
  alignas(64) std::atomic<std::uint64_t> written{0};
  alignas(64) std::atomic<std::uint64_t> read{0};
  alignas(64) std::byte slots[kSlots][kSlotBytes];
};

template <typename Condition>
void SpinUntil(Condition condition) {
  for (int spins = 1; !condition(); ++spins) {
    _mm_pause();
    if (spins % kSpinsUntilYield == 0) sched_yield();
  }
}

void Send(Ring* ring, const std::byte* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kSlotBytes) {
    const std::uint64_t slot = ring->written.load(std::memory_order_relaxed);
    SpinUntil([&] { return slot - ring->read.load(std::memory_order_acquire) < kSlots; });
    std::memcpy(ring->slots[slot % kSlots], from + done, std::min(kSlotBytes, bytes - done));
    ring->written.store(slot + 1, std::memory_order_release);
  }
}

void Receive(Ring* ring, std::byte* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kSlotBytes) {
    const std::uint64_t slot = ring->read.load(std::memory_order_relaxed);
    SpinUntil([&] { return ring->written.load(std::memory_order_acquire) > slot; });
    std::memcpy(to + done, ring->slots[slot % kSlots], std::min(kSlotBytes, bytes - done));
    ring->read.store(slot + 1, std::memory_order_release);
  }
  Keep(to);
}

struct Channel {
  Ring requests, replies;
};

Channel* MakeChannel() {
  void* memory = mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(memory != MAP_FAILED, "cannot map shared memory");
  return new (memory) Channel;
}

[[noreturn]] void Answer(Channel* channel, const Exchange& exchange) {
  std::vector<std::byte> request(exchange.request_bytes), reply(exchange.reply_bytes, std::byte{1});
  while (true) {
    Receive(&channel->requests, request.data(), request.size());
    Send(&channel->replies, reply.data(), reply.size());
  }
}

void Measure(const Exchange& exchange, const Duration& duration) {
  Channel* channel = MakeChannel();
  {
    const Child server = Fork([&] { Answer(channel, exchange); });
    std::vector<std::byte> request(exchange.request_bytes, std::byte{1}), reply(exchange.reply_bytes);
    const auto start = [&] { return Send(&channel->requests, request.data(), request.size()), 0; };
    const auto finish = [&](int) { Receive(&channel->replies, reply.data(), reply.size()); };
    Figure figure = ExchangeFigure("shm", exchange);
    if (exchange.round_trip) {
      PrintLatencies(std::move(figure), Latencies(duration, [&] { finish(start()); }));
    } else {
      figure.value = exchange.units * PerSecond(duration, exchange.depth, start, finish);
      Print(figure);
    }
  }
  munmap(channel, sizeof *channel);
}

}  // namespace

void MeasureSharedMemory(const LimitOptions& options) {
  for (Exchange exchange : Exchanges(options)) {
    // As many messages as the ring holds keep both sides busy; more in flight would cause a deadlock.
    const std::size_t largest = std::max(exchange.request_bytes, exchange.reply_bytes);
    const std::size_t slots = (largest + kSlotBytes - 1) / kSlotBytes;
    exchange.depth = std::min(exchange.depth, std::max<std::size_t>(1, kSlots / slots));
    Measure(exchange, options.duration);
  }
}

}  // namespace tarn::bench

// A byte stream from one process to another through shared memory. Neither the writer nor the reader blocks or makes
// system calls.
//
// The memory is mapped twice in succession, so that data that wraps around the end is contiguous. The other side may
// corrupt the counters: each read of them is checked, and a ring with invalid counters is broken permanently. Both ends
// start at 0, whatever the shared words contain.
//
// Sleep and wake: a reader calls Sleep before it sleeps; the writer's next Publish then returns true. A writer calls
// WaitForRoom before it waits; the reader's next GiveBack that leaves room then returns true. The caller that gets true
// wakes the other side (net/shm_channel.h). Spurious wake-ups are possible; missed ones are not, because each side
// writes its own word and then reads the other's, in sequentially consistent order.
//
// Threads: one thread may own the writer and another, in this process or another one, the reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tarn::net {

// The shared words, each in a separate cache line.
struct RingWords {
  alignas(64) std::atomic<std::uint64_t> written{0};  // bytes so far
  alignas(64) std::atomic<std::uint64_t> read{0};
  alignas(64) std::atomic<std::uint32_t> reader_sleeps{0};
  alignas(64) std::atomic<std::uint32_t> writer_waits{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

class RingWriter {
 public:
  // `bytes`: 2 x capacity, mapped twice; capacity is a power of two.
  RingWriter(RingWords* words, std::byte* bytes, std::size_t capacity)
      : words_(words), bytes_(bytes), capacity_(capacity) {}

  // Bytes that can be written now; 0 in a broken ring.
  std::size_t Room() {
    const std::uint64_t used = written_ - words_->read.load(std::memory_order_acquire);
    broken_ |= used > capacity_;
    return broken_ ? 0 : capacity_ - used;
  }
  // Memory for the next bytes, at most Room().
  std::byte* Place() { return bytes_ + (written_ & (capacity_ - 1)); }
  void Write(const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(Place(), from, bytes);
    written_ += bytes;
  }
  // Advances without writing.
  void Skip(std::size_t bytes) { written_ += bytes; }
  // Makes the written bytes visible to the reader. True: the reader sleeps, and this caller must wake it.
  bool Publish() {
    words_->written.store(written_, std::memory_order_seq_cst);
    return words_->reader_sleeps.load(std::memory_order_seq_cst) != 0 &&
           words_->reader_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
  }
  // Requests a wake-up when a quarter of the ring is free. True: it is free already.
  bool WaitForRoom() {
    words_->writer_waits.store(1, std::memory_order_seq_cst);
    const std::uint64_t used = written_ - words_->read.load(std::memory_order_seq_cst);
    broken_ |= used > capacity_;
    return capacity_ - used >= capacity_ / 4;
  }
  bool broken() const { return broken_; }

 private:
  RingWords* words_;
  std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t written_ = 0;
  bool broken_ = false;
};

class RingReader {
 public:
  RingReader(RingWords* words, const std::byte* bytes, std::size_t capacity)
      : words_(words), bytes_(bytes), capacity_(capacity) {}

  // Bytes that can be read now; 0 in a broken ring.
  std::size_t Available() {
    seen_ = words_->written.load(std::memory_order_acquire);
    broken_ |= seen_ - released_ > capacity_ || seen_ - released_ < read_ - released_;
    return broken_ ? 0 : seen_ - read_;
  }
  // The next bytes, at most Available(). They stay valid until GiveBack.
  const std::byte* Place() const { return bytes_ + (read_ & (capacity_ - 1)); }
  // Consumes bytes, at most Available().
  void Pass(std::size_t bytes) { read_ += bytes; }
  // Releases the consumed bytes to the writer. True: the writer waits for room, and this caller must wake it.
  bool GiveBack() {
    if (released_ == read_) return false;
    released_ = read_;
    words_->read.store(released_, std::memory_order_seq_cst);
    if (words_->writer_waits.load(std::memory_order_seq_cst) == 0) return false;
    const std::uint64_t used = words_->written.load(std::memory_order_relaxed) - released_;
    if (capacity_ - used < capacity_ / 4) return false;
    return words_->writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
  }
  // Announces that the reader will sleep. False: new bytes arrived since the last Available, so it must not sleep.
  bool Sleep() {
    words_->reader_sleeps.store(1, std::memory_order_seq_cst);
    if (words_->written.load(std::memory_order_seq_cst) == seen_) return true;
    Awake();
    return false;
  }
  // Whether new bytes arrived since the last Available.
  bool Changed() const { return words_->written.load(std::memory_order_relaxed) != seen_; }
  // Revokes the announcement of Sleep.
  void Awake() { words_->reader_sleeps.store(0, std::memory_order_relaxed); }
  bool broken() const { return broken_; }

 private:
  RingWords* words_;
  const std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t read_ = 0;
  std::uint64_t released_ = 0;  // released to the writer; at most read_
  std::uint64_t seen_ = 0;      // the writer's position at the last check
  bool broken_ = false;
};

}  // namespace tarn::net

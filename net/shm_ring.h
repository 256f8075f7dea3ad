// A stream of bytes from one process to another through memory that they share: one writes, one reads, neither waits
// for the other or calls the system.
//
// The memory is mapped twice in a row, so that what wraps around its end lies in one piece all the same. The counters
// are the other side's to spoil: each look at them is checked, and a ring whose counters make no sense is broken for
// good. Both ends begin at 0, whatever the shared words hold by then.
//
// Sleep and wake: a reader that is about to sleep says so (Sleep), and the writer learns from Publish that it must be
// woken; a writer that waits for room says so (WaitForRoom), and the reader learns it from GiveBack. How to wake is the
// owner's business (net/shm_lane.h). Whoever sleeps may be woken for nothing, but nothing is missed: each side writes
// its own word, then reads the other's, in sequentially consistent order.
//
// Threads: one thread may own the writer and another, in this process or another one, the reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tarn::net {

// The words that both sides see. Each lies in a cache line of its own.
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
  // Where the next bytes go. At most Room() of them.
  std::byte* Place() { return bytes_ + (written_ & (capacity_ - 1)); }
  void Write(const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(Place(), from, bytes);
    written_ += bytes;
  }
  // Leaves bytes as they are.
  void Skip(std::size_t bytes) { written_ += bytes; }
  // Shows the reader what was written. True: it sleeps, and this call alone was told so.
  bool Publish() {
    words_->written.store(written_, std::memory_order_seq_cst);
    return words_->reader_sleeps.load(std::memory_order_seq_cst) != 0 &&
           words_->reader_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
  }
  // Asks to be woken once a quarter of the ring is free. True: there is as much already.
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
    broken_ |= seen_ - given_ > capacity_ || seen_ - given_ < read_ - given_;
    return broken_ ? 0 : seen_ - read_;
  }
  // The next bytes. At most Available() of them. They stay until they are given back.
  const std::byte* Place() const { return bytes_ + (read_ & (capacity_ - 1)); }
  void Pass(std::size_t bytes) { read_ += bytes; }
  // Gives what was passed back to the writer. True: it waits for room, and this call alone was told so.
  bool GiveBack() {
    if (given_ == read_) return false;
    given_ = read_;
    words_->read.store(given_, std::memory_order_seq_cst);
    if (words_->writer_waits.load(std::memory_order_seq_cst) == 0) return false;
    const std::uint64_t used = words_->written.load(std::memory_order_relaxed) - given_;
    if (capacity_ - used < capacity_ / 4) return false;
    return words_->writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
  }
  // About to sleep. False: something came since the last look.
  bool Sleep() {
    words_->reader_sleeps.store(1, std::memory_order_seq_cst);
    if (words_->written.load(std::memory_order_seq_cst) == seen_) return true;
    Awake();
    return false;
  }
  // Whether something came since the last look.
  bool Changed() const { return words_->written.load(std::memory_order_relaxed) != seen_; }
  void Awake() { words_->reader_sleeps.store(0, std::memory_order_relaxed); }
  bool broken() const { return broken_; }

 private:
  RingWords* words_;
  const std::byte* bytes_;
  std::size_t capacity_;
  std::uint64_t read_ = 0;
  std::uint64_t given_ = 0;  // back; up to read_
  std::uint64_t seen_ = 0;   // what the writer had written at the last look
  bool broken_ = false;
};

}  // namespace tarn::net

// The time of machines: threads that do one thing after the other and share their host's cores, and links with a
// bandwidth and a latency. All times in nanoseconds of a sim::EventQueue. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "sim/event_queue.h"

namespace tarn::scale {

using Ns = TimeUs;  // an EventQueue counts in what its caller counts in

class Host;

// Does what it is given in order; each piece takes its nanoseconds of a core.
class Thread {
 public:
  explicit Thread(Host* host) : host_(host) {}
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  // Calls `done` when the piece is done.
  void Run(double ns, std::function<void()> done);
  // The same for a piece that can begin at `at`, on a host whose threads have a core each: when it is done.
  double Reserve(double at, double ns);
  // Nanoseconds of work so far, waiting for a core not counted.
  double busy_ns() const { return busy_ns_; }

 private:
  friend class Host;
  struct Piece {
    double left_ns;
    std::function<void()> done;
  };
  Host* host_;
  std::deque<Piece> pieces_;  // only where cores are shared
  double free_at_ns_ = 0;     // only where they are not
  double busy_ns_ = 0;
};

class Host {
 public:
  // cores: what its threads share, in equal parts; 0: each thread has a core of its own. busy_slowdown: how much longer
  // work takes while more than one core is busy (shared caches and memory, hardware threads of one core).
  Host(sim::EventQueue* events, unsigned cores, double busy_slowdown)
      : events_(events), cores_(cores), slowdown_(busy_slowdown) {}

 private:
  friend class Thread;
  void Start(Thread* thread);
  void Advance();
  void Arm();
  void Finish(std::uint64_t version);
  double Rate() const;

  sim::EventQueue* events_;
  unsigned cores_;
  double slowdown_;
  std::vector<Thread*> running_;  // those with work, in order of start
  double last_ns_ = 0;            // when left_ns was right
  std::uint64_t version_ = 0;     // of the event that is due next
};

// One direction of a network card: bytes leave (or come in) one message after the other.
class Wire {
 public:
  // When `bytes` that want to go at `at` have gone.
  double Pass(double at, double bytes, double ns_per_byte) {
    free_at_ = (at > free_at_ ? at : free_at_) + bytes * ns_per_byte;
    return free_at_;
  }

 private:
  double free_at_ = 0;
};

}  // namespace tarn::scale

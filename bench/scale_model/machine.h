// A model of machines: threads, which process work in order and share their host's cores, and network cards (links.h
// adds the latency). All times in nanoseconds of a sim::EventQueue. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "sim/event_queue.h"

namespace tarn::scale {

using Ns = sim::EventQueue::Time;

class Host;

// Processes pieces of work in order. Each needs a core for the nanoseconds given to Run or Reserve.
class Thread {
 public:
  explicit Thread(Host* host) : host_(host) {}
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  // Adds a piece of work of `ns` nanoseconds. Calls `done` at its end.
  void Run(double ns, std::function<void()> done);
  // The same for a piece that can begin at `at`, on a host with a core per thread. Returns the time of its end.
  double Reserve(double at, double ns);
  // Nanoseconds of all work added so far, without waits for a core.
  double busy_ns() const { return busy_ns_; }

 private:
  friend class Host;
  struct Piece {
    double left_ns;
    std::function<void()> done;
  };
  Host* host_;
  std::deque<Piece> pieces_;  // only if cores are shared
  double free_at_ns_ = 0;     // only if cores are not shared
  double busy_ns_ = 0;
};

class Host {
 public:
  // `cores`: shared equally by its threads; 0: a core per thread. `busy_slowdown`: with shared cores, factor of the
  // time while more than one thread has work (shared caches and memory, hardware threads of one core).
  Host(sim::EventQueue* events, unsigned cores, double busy_slowdown)
      : events_(events), cores_(cores), slowdown_(busy_slowdown) {}

 private:
  friend class Thread;
  void Start(Thread* thread);
  // Subtracts the work done since the last update from the current piece of each running thread.
  void Advance();
  // Schedules Finish for the end of the piece that ends first.
  void Arm();
  // Ends the pieces that are done. Does nothing if `version` is outdated.
  void Finish(std::uint64_t version);
  // The work in nanoseconds that each running thread does in a nanosecond of time.
  double Rate() const;

  sim::EventQueue* events_;
  unsigned cores_;
  double slowdown_;
  std::vector<Thread*> running_;  // threads with work, in order of start
  double last_ns_ = 0;            // time of the last update of left_ns
  std::uint64_t version_ = 0;     // of the next event; earlier events are ignored
};

// One direction of a network card, which transfers one message after the other.
class Wire {
 public:
  // Transfers `bytes` from time `at` on; returns the time of the end.
  double Pass(double at, double bytes, double ns_per_byte) {
    free_at_ = (at > free_at_ ? at : free_at_) + bytes * ns_per_byte;
    return free_at_;
  }

 private:
  double free_at_ = 0;
};

}  // namespace tarn::scale

// A model of machines: threads, which process work in order and may share a core, and network cards (links.h adds the
// latency). All times in nanoseconds of a sim::EventQueue. One thread.
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
  // `core`: below the number of the host's cores, unless the host has a core per thread.
  Thread(Host* host, unsigned core);
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
  unsigned core_;
  // Only if cores are shared.
  std::deque<Piece> pieces_;
  bool runnable_ = false;
  double slice_ns_ = 0;    // left of its slice
  double free_at_ns_ = 0;  // only if cores are not shared
  double busy_ns_ = 0;
};

class Host {
 public:
  // `cores`: number of cores; a thread keeps its core until it has no work or its time slice ends
  // (core/batch_scheduling.h). 0: a core per thread. `busy_slowdown`: with shared cores, the factor of the time while
  // another core also has work (shared caches and memory, hardware threads of one core).
  Host(sim::EventQueue* events, unsigned cores, double busy_slowdown)
      : events_(events), cores_(cores), slowdown_(busy_slowdown) {}

 private:
  friend class Thread;
  void Start(Thread* thread);
  // Subtracts the work done since the last update from the current piece and slice of each running thread.
  void Advance();
  // Schedules Finish for the first end of a piece or slice.
  void Arm();
  // Ends the pieces and slices that are done. Does nothing if `version` is outdated.
  void Finish(std::uint64_t version);
  // The threads that have a core.
  std::vector<Thread*> Running() const;
  double Slowdown(std::size_t running) const { return running > 1 ? slowdown_ : 1; }

  sim::EventQueue* events_;
  unsigned cores_;
  double slowdown_;
  std::vector<Thread*> runnable_;  // threads with work; the first one of a core has the core
  double last_ns_ = 0;             // time of the last update
  std::uint64_t version_ = 0;      // of the next event; earlier events are ignored
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

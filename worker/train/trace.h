// A trace of a worker: spans of work by stage, stored in memory and written at the end as a Chrome trace (for
// Perfetto).
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::worker {

inline constexpr int kReaderTrack = 1;   // the reader's thread
inline constexpr int kComputeTrack = 2;  // the training loop
inline constexpr int kPullTrack = 3;     // pulls, which overlap; as many tracks as needed

// Thread-safe. Stores at most `events_max` spans: all of a short run, a sample of a long one. Time is divided
// into slices. Whenever there are too many spans, every other stored slice is dropped, and the same share of later
// ones. A span that begins in a stored slice is stored in full.
class Trace {
 public:
  static constexpr std::size_t kEventsMax = 100'000;
  static constexpr std::chrono::milliseconds kSlice{100};
  using SteadyClock = std::chrono::steady_clock;

  // events_max 0: it records nothing.
  explicit Trace(std::size_t events_max = kEventsMax) : events_max_(events_max) {}

  void Add(const char* name, int track, SteadyClock::time_point begin, SteadyClock::time_point end);
  // Writes {"traceEvents": [...], "otherData": {"slice_ms", "one_slice_in", "spans_left_out"}} with process id `rank`.
  // Spans of one thread id never overlap, because viewers drop overlapping spans that do not nest. So pulls have ids
  // from kPullTrack on.
  Status Write(const std::string& path, std::uint32_t rank) const;

 private:
  struct Event {
    const char* name;
    int track;
    SteadyClock::time_point begin, end;
  };
  bool Kept(const Event& event) const;
  std::vector<int> Tracks() const;

  const std::size_t events_max_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  SteadyClock::time_point start_;  // start of the first span
  std::uint64_t one_slice_in_ = 1;
  std::uint64_t left_out_ = 0;
};

// One span of work, from construction to End (or destruction). `trace` may be null; the time is measured anyway.
class Span {
 public:
  Span(Trace* trace, const char* name, int track)
      : trace_(trace), name_(name), track_(track), begin_(Trace::SteadyClock::now()) {}
  ~Span() {
    if (!ended_) End();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Seconds since construction.
  double End() {
    ended_ = true;
    const auto end = Trace::SteadyClock::now();
    if (trace_ != nullptr) trace_->Add(name_, track_, begin_, end);
    return std::chrono::duration<double>(end - begin_).count();
  }

 private:
  Trace* trace_;
  const char* name_;
  int track_;
  Trace::SteadyClock::time_point begin_;
  bool ended_ = false;
};

}  // namespace tarn::worker

// Where the time of a worker goes: spans of work by stage, kept in memory and written as a Chrome trace (opens in
// Perfetto) at the end.
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
inline constexpr int kPullTrack = 3;  // pulls under way, which overlap the others and each other; as many as it takes

// Thread-safe. Keeps all spans while they are few, and of a long run a sample from beginning to end: time is cut into
// slices, and whenever there are more than `events_max` spans, every second of the slices kept so far is left out, and
// of those to come as many. What begins in a slice that is kept is there in full: batches are seen with all their
// stages.
class Trace {
 public:
  static constexpr std::size_t kEventsMax = 100'000;
  static constexpr std::chrono::milliseconds kSlice{100};
  using SteadyClock = std::chrono::steady_clock;

  explicit Trace(std::size_t events_max = kEventsMax) : events_max_(events_max) {}

  void Add(const char* name, int track, SteadyClock::time_point begin, SteadyClock::time_point end);
  // Writes {"traceEvents": [...], "otherData": {"slice_ms", "one_slice_in", "spans_left_out"}} with process id `rank`.
  // Spans of one thread id never overlap (viewers drop what does, and does not nest): pulls have ids from kPullTrack
  // on.
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
  SteadyClock::time_point start_;  // of the first span
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

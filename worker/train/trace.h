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
inline constexpr int kPullTrack = 3;     // pulls under way, which overlap the others

// Thread-safe. Keeps the first kEventsMax spans and counts the rest.
class Trace {
 public:
  static constexpr std::size_t kEventsMax = 100'000;
  using SteadyClock = std::chrono::steady_clock;

  void Add(const char* name, int track, SteadyClock::time_point begin, SteadyClock::time_point end);
  // Writes {"traceEvents": [...]} with process id `rank`.
  Status Write(const std::string& path, std::uint32_t rank) const;

 private:
  struct Event {
    const char* name;
    int track;
    SteadyClock::time_point begin, end;
  };
  mutable std::mutex mutex_;
  std::vector<Event> events_;
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

#include "worker/train/trace.h"

#include <fmt/format.h>

#include <iterator>

#include "core/file.h"

namespace tarn::worker {

void Trace::Add(const char* name, int track, SteadyClock::time_point begin, SteadyClock::time_point end) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < kEventsMax)
    events_.push_back({name, track, begin, end});
  else
    ++left_out_;
}

Status Trace::Write(const std::string& path, std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto micros = [](SteadyClock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"worker {}"}}}})", rank, rank);
  const char* const tracks[] = {"reader", "training loop", "pulls under way"};
  for (int track = kReaderTrack; track <= kPullTrack; ++track)
    fmt::format_to(out,
                   ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}",
                   rank, track, tracks[track - 1]);
  for (const Event& e : events_)
    fmt::format_to(out, ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.1f},\"dur\":{:.1f}}}",
                   e.name, rank, e.track, micros(e.begin.time_since_epoch()), micros(e.end - e.begin));
  fmt::format_to(out, "\n],\"otherData\":{{\"spans_left_out\":{}}}}}\n", left_out_);
  return WriteFileAtomic(path, text);
}

}  // namespace tarn::worker

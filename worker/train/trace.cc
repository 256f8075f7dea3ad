#include "worker/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/file.h"

namespace tarn::worker {

bool Trace::Kept(const Event& event) const {
  const auto slice = static_cast<std::uint64_t>(std::max(event.begin - start_, SteadyClock::duration(0)) / kSlice);
  return slice % one_slice_in_ == 0;
}

void Trace::Add(const char* name, int track, SteadyClock::time_point begin, SteadyClock::time_point end) {
  const std::lock_guard lock(mutex_);
  if (events_.empty() && left_out_ == 0) start_ = begin;
  const Event event{name, track, begin, end};
  if (!Kept(event)) {
    ++left_out_;
    return;
  }
  events_.push_back(event);
  if (events_.size() <= events_max_) return;
  one_slice_in_ *= 2;
  left_out_ += std::erase_if(events_, [this](const Event& e) { return !Kept(e); });
  // All in one slice.
  if (events_.size() <= events_max_) return;
  events_.pop_back();
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
  fmt::format_to(out, "\n],\"otherData\":{{\"slice_ms\":{},\"one_slice_in\":{},\"spans_left_out\":{}}}}}\n",
                 kSlice.count(), one_slice_in_, left_out_);
  return WriteFileAtomic(path, text);
}

}  // namespace tarn::worker

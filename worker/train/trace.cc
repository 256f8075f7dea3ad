#include "worker/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/file.h"

namespace tarn::worker {
namespace {

// Minimum distance of spans, because viewers round to fractions of a microsecond.
constexpr std::chrono::microseconds kApart{1};

std::string NameOf(int track) {
  if (track == kReaderTrack) return "reader";
  if (track == kComputeTrack) return "training loop";
  if (track == kPullTrack) return "pulls under way";
  return fmt::format("pulls under way, {}", track - kPullTrack + 1);
}

}  // namespace

// The track of each event: its own, or for pulls the lowest free one.
std::vector<int> Trace::Tracks() const {
  std::vector<std::size_t> pulls;
  std::vector<int> tracks;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    tracks.push_back(events_[i].track);
    if (events_[i].track == kPullTrack) pulls.push_back(i);
  }
  std::ranges::stable_sort(pulls, {}, [this](std::size_t i) { return events_[i].begin; });
  std::vector<SteadyClock::time_point> ends;  // by track
  for (const std::size_t i : pulls) {
    const auto free = std::ranges::find_if(ends, [&](auto end) { return end + kApart <= events_[i].begin; });
    tracks[i] += static_cast<int>(free - ends.begin());
    if (free == ends.end())
      ends.push_back(events_[i].end);
    else
      *free = events_[i].end;
  }
  return tracks;
}

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
  // All spans are in one slice.
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
  const std::vector<int> tracks = Tracks();
  const int last = tracks.empty() ? kPullTrack : std::max(kPullTrack, std::ranges::max(tracks));
  for (int track = kReaderTrack; track <= last; ++track)
    fmt::format_to(out,
                   ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}",
                   rank, track, NameOf(track));
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    fmt::format_to(out, ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}}",
                   e.name, rank, tracks[i], micros(e.begin.time_since_epoch()), micros(e.end - e.begin));
  }
  fmt::format_to(out, "\n],\"otherData\":{{\"slice_ms\":{},\"one_slice_in\":{},\"spans_left_out\":{}}}}}\n",
                 kSlice.count(), one_slice_in_, left_out_);
  return WriteFileAtomic(path, text);
}

}  // namespace tarn::worker

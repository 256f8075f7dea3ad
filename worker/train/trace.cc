#include "worker/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "core/json.h"

namespace tarn::worker {
namespace {

// Minimum gap between two spans of a track: viewers round times and drop spans that overlap.
constexpr std::chrono::microseconds kGapMin{1};

std::string NameOf(int track) {
  if (track == kReaderTrack) return "reader";
  if (track == kComputeTrack) return "training loop";
  if (track == kPullTrack) return "pulls under way";
  return fmt::format("pulls under way, {}", track - kPullTrack + 1);
}

// With three decimals.
double Microseconds(Trace::SteadyClock::duration d) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count()) / 1000;
}

}  // namespace

// The track of each event: its own, or for pulls the lowest one that is free at its begin.
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
    const auto free = std::ranges::find_if(ends, [&](auto end) { return end + kGapMin <= events_[i].begin; });
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
  if (events_max_ == 0) return;
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
  Json events = Json::array();
  const auto name = [&](const char* what, int track, const std::string& text) {
    Json event = {{"ph", "M"}, {"name", what}, {"pid", rank}};
    if (track != 0) event["tid"] = track;
    event["args"] = {{"name", text}};
    events.push_back(std::move(event));
  };
  name("process_name", 0, fmt::format("worker {}", rank));
  const std::vector<int> tracks = Tracks();
  const int last = tracks.empty() ? kPullTrack : std::max(kPullTrack, std::ranges::max(tracks));
  for (int track = kReaderTrack; track <= last; ++track) name("thread_name", track, NameOf(track));
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    events.push_back({{"ph", "X"},
                      {"name", e.name},
                      {"pid", rank},
                      {"tid", tracks[i]},
                      {"ts", Microseconds(e.begin.time_since_epoch())},
                      {"dur", Microseconds(e.end - e.begin)}});
  }
  const Json sample = {{"slice_ms", kSlice.count()}, {"one_slice_in", one_slice_in_}, {"spans_left_out", left_out_}};
  const Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}, {"otherData", sample}};
  return WriteFileAtomic(path, JsonText(trace) + "\n");
}

}  // namespace tarn::worker

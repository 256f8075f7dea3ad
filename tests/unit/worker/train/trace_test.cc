// Shows that a trace contains every span of a short run, and of a long run a sample of whole slices of time from its
// beginning to its end, within its bound.
#include "worker/train/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/hash.h"
#include "tests/unit/worker/data/temp_dir.h"

namespace tarn::worker {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kEventsMax = 1000;

// Adds `ms` consecutive spans of 1 ms.
void Fill(Trace* trace, int ms) {
  const Trace::SteadyClock::time_point start{std::chrono::hours(1)};
  for (int i = 0; i < ms; ++i)
    trace->Add("compute", kComputeTrack, start + milliseconds(i), start + milliseconds(i + 1));
}

struct Written {
  std::string text;
  std::vector<long> begins_ms;  // since the first
};

Written Write(const Trace& trace) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/trace.json";
  EXPECT_TRUE(trace.Write(path, 3));
  Written written{*ReadFile(path, 1 << 20), {}};
  for (std::size_t at = 0; (at = written.text.find("\"ts\":", at)) != std::string::npos; ++at)
    written.begins_ms.push_back(std::lround(std::stod(written.text.substr(at + 5)) / 1000) - 3'600'000);
  return written;
}

TEST(Trace, KeepsEverySpanUpToItsBound) {
  Trace trace(kEventsMax);
  Fill(&trace, kEventsMax);
  const Written written = Write(trace);
  EXPECT_EQ(written.begins_ms.size(), kEventsMax);
  EXPECT_NE(written.text.find("\"one_slice_in\":1,\"spans_left_out\":0"), std::string::npos);
}

TEST(Trace, OnePastItsBoundEverySecondSliceIsDropped) {
  Trace trace(kEventsMax);
  Fill(&trace, kEventsMax + 1);
  const Written written = Write(trace);
  EXPECT_EQ(written.begins_ms.size(), 501u);  // slices 0, 2, 4, 6, 8 and the first of slice 10
  for (long begin : written.begins_ms) EXPECT_EQ(begin / 100 % 2, 0);
  EXPECT_NE(written.text.find("\"one_slice_in\":2,\"spans_left_out\":500"), std::string::npos);
}

TEST(Trace, ALongRunIsSampledFromBeginningToEnd) {
  Trace trace(kEventsMax);
  constexpr int kMs = 100'000;
  Fill(&trace, kMs);
  const Written written = Write(trace);
  EXPECT_LE(written.begins_ms.size(), kEventsMax);
  EXPECT_GT(written.begins_ms.size(), kEventsMax / 4);
  std::map<long, int> slices;
  for (long begin : written.begins_ms) ++slices[begin / 100];
  for (const auto& [slice, spans] : slices) EXPECT_EQ(spans, 100) << slice;  // whole
  EXPECT_EQ(slices.begin()->first, 0);
  EXPECT_GT(slices.rbegin()->first, kMs / 100 * 3 / 4);
}

// Pulls of batches in flight overlap, and viewers drop spans of one track that overlap without nesting.
TEST(Trace, SpansOfOneTrackNeverOverlap) {
  Trace trace;
  const Trace::SteadyClock::time_point start{std::chrono::hours(1)};
  SplitMix random(5);
  std::size_t pulls = 0;
  for (int i = 0; i < 400; ++i) {
    const auto at = start + std::chrono::nanoseconds(i * 1'000'003);
    trace.Add("compute", kComputeTrack, at, at + std::chrono::nanoseconds(1'000'003));
    if (i % 7 == 6) continue;
    trace.Add("pull", kPullTrack, at, at + std::chrono::nanoseconds(random.Below(4'000'000)));
    ++pulls;
  }
  std::map<int, std::map<long, long>> ends;  // in ns by track and begin
  std::size_t seen = 0;
  const std::string text = Write(trace).text;
  for (std::size_t at = 0; (at = text.find("\"tid\":", at)) != std::string::npos; ++at) {
    int track = 0;
    double begin = 0, duration = 0;
    if (std::sscanf(text.c_str() + at, "\"tid\":%d,\"ts\":%lf,\"dur\":%lf", &track, &begin, &duration) != 3) continue;
    const long ns = std::lround(begin * 1000);
    EXPECT_TRUE(ends[track].emplace(ns, ns + std::lround(duration * 1000)).second);
    seen += track >= kPullTrack ? 1 : 0;
  }
  EXPECT_EQ(seen, pulls);
  EXPECT_GE(ends.size(), 5u) << "up to four pulls are under way at once";
  EXPECT_LE(ends.size(), 7u) << "and a track is used again";
  for (const auto& [track, spans] : ends) {
    EXPECT_NE(text.find("\"tid\":" + std::to_string(track) + ",\"args\""), std::string::npos) << "it has a name";
    long last = 0;
    for (const auto& [begin, end] : spans) {
      EXPECT_GE(begin, last) << "on track " << track;
      last = end;
    }
  }
}

TEST(Trace, ASingleSliceKeepsTheBound) {
  Trace trace(10);
  Fill(&trace, 50);
  EXPECT_EQ(Write(trace).begins_ms.size(), 10u);
}

}  // namespace
}  // namespace tarn::worker

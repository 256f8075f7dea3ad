// Shows that a trace holds every span of a short run, and of a long one a sample of whole slices of time from beginning
// to end, never more than its bound.
#include "worker/train/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "tests/unit/data/temp_dir.h"

namespace tarn::worker {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kEventsMax = 1000;

// Spans of 1 ms: for `ms` milliseconds, one in each.
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

TEST(Trace, OnePastItsBoundEverySecondSliceGoes) {
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

TEST(Trace, ASliceThatIsFullByItselfHoldsToTheBound) {
  Trace trace(10);
  Fill(&trace, 50);
  EXPECT_EQ(Write(trace).begins_ms.size(), 10u);
}

}  // namespace
}  // namespace tarn::worker

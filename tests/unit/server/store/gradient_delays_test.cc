// Shows that gradient delays are counted by length and by worker, within the limits of both.
#include "server/store/gradient_delays.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/limits.h"

namespace tarn::server {
namespace {

using Counters = std::vector<std::pair<std::string, double>>;

Counters ByWorker(const GradientDelays& delays) {
  Counters found;
  for (const Counter& counter : delays.ByWorker().ToCounters()) found.emplace_back(counter.name, counter.value);
  return found;
}

TEST(GradientDelays, AreEmptyAtFirst) {
  const GradientDelays delays;
  EXPECT_TRUE(delays.histogram().empty());
  EXPECT_EQ(ByWorker(delays), Counters());
}

TEST(GradientDelays, AreCountedByLengthAndWorker) {
  GradientDelays delays;
  delays.Count(2, WorkerRank(0));
  delays.Count(0, WorkerRank(3));
  delays.Count(2, WorkerRank(3));
  EXPECT_EQ(delays.histogram(), (std::vector<std::uint64_t>{1, 0, 2}));
  EXPECT_EQ(ByWorker(delays), (Counters{{"gradient_delay_sum.0", 2},
                                        {"gradient_delay_sum.3", 2},
                                        {"gradient_delay_count.0", 1},
                                        {"gradient_delay_count.3", 2}}));
}

TEST(GradientDelays, BeyondTheLimitsAreCountedInTheLastBucketAndWithoutAWorker) {
  GradientDelays delays;
  delays.Count(limits::kDelayBucketsMax + 5, WorkerRank(limits::kDelayWorkersMax));
  delays.Count(limits::kDelayBucketsMax - 1, kNoWorker);
  ASSERT_EQ(delays.histogram().size(), limits::kDelayBucketsMax);
  EXPECT_EQ(delays.histogram().back(), 2u);
  EXPECT_EQ(ByWorker(delays), Counters());
}

}  // namespace
}  // namespace tarn::server

// Shows that Totals stores the sums of ended nodes in bounded memory.
#include "scheduler/progress/totals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tarn::scheduler {
namespace {

Heartbeat Beat(const std::string& name, double value) {
  Heartbeat beat;
  beat.counters = {{name, value}};
  beat.staleness = {1, 2};
  return beat;
}

TEST(Totals, KeepTheNewestOfEachNodeAndTheSumOfEndedNodes) {
  Totals totals;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    totals.OnHeartbeat({Role::kWorker, 0, Incarnation(i)}, Beat("pull_bytes", 3));
    totals.End(Incarnation(i));
  }
  totals.OnHeartbeat({Role::kWorker, 0, Incarnation(5000)}, Beat("pull_bytes", 4));
  EXPECT_EQ(totals.nodes(), 1u);
  EXPECT_EQ(totals.Counters().at("pull_bytes"), 3004);
  EXPECT_EQ(totals.Staleness(), (std::vector<std::uint64_t>{1001, 2002}));
}

TEST(Totals, DelaysAreSumsOverShards) {
  Totals totals;
  Heartbeat beat;
  beat.delay = {5, 1};
  totals.OnHeartbeat({Role::kShard, 0, Incarnation(1)}, beat);
  beat.delay = {4};  // delayed
  totals.OnHeartbeat({Role::kShard, 0, Incarnation(1)}, beat);
  beat.delay = {1, 1, 7};
  totals.OnHeartbeat({Role::kShard, 1, Incarnation(2)}, beat);
  EXPECT_EQ(totals.Delay(), (std::vector<std::uint64_t>{6, 2, 7}));
  EXPECT_TRUE(totals.Staleness().empty());
}

TEST(Totals, KeepTheNamesOfEndedNodesUpToALimit) {
  Totals totals;
  for (std::uint64_t i = 1; i <= Totals::kEndedNamesMax + 1; ++i) {
    totals.OnHeartbeat({Role::kWorker, 0, Incarnation(i)}, Beat("name" + std::to_string(i), 1));
    totals.End(Incarnation(i));
    EXPECT_EQ(totals.Counters().contains("name" + std::to_string(i)), i <= Totals::kEndedNamesMax);
  }
  EXPECT_EQ(totals.Counters().size(), Totals::kEndedNamesMax);
}

}  // namespace
}  // namespace tarn::scheduler

// Shows which values of a key PushCounts allows: those that contain all pushes that must count, and no push twice.
#include "sim/push_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace tarn::sim {
namespace {

constexpr Key kKey = 5;
constexpr Incarnation kFirst{11}, kSecond{12};

Scenario MakeTwoWorkers(ConsistencyMode mode, ApplyMode apply) {
  Scenario scenario;
  scenario.counts.mode = mode;
  scenario.counts.apply = apply;
  scenario.train_rows = 4;
  return scenario;
}

class PushCountsTest : public ::testing::Test {
 protected:
  explicit PushCountsTest(Scenario scenario = MakeTwoWorkers(ConsistencyMode::kAsp, ApplyMode::kImmediate))
      : scenario_(std::move(scenario)) {
    ShowWorkers({{.incarnation = kFirst}, {.incarnation = kSecond}});
  }
  void ShowWorkers(std::vector<WorkerEntry> workers) {
    ++view_.version.value;
    view_.workers = std::move(workers);
    ASSERT_EQ(cohorts_.OnView(view_), "");
  }
  // A push of `count` occurrences of kKey.
  std::size_t Push(Incarnation worker, Clock clock, float count) {
    const std::map<Key, float> sent{{kKey, count}};
    return counts_.OnIssued(worker, clock, {.epoch = 0, .first = clock.value, .count = 1}, &sent);
  }
  bool AllowsFinal(float value) const { return counts_.CheckFinal(kKey, value, {}).empty(); }

  const Scenario scenario_;
  View view_;
  Cohorts cohorts_;
  PushCounts counts_{scenario_, &cohorts_};
};

TEST_F(PushCountsTest, AnAcknowledgedPushCountsOnceAndAnotherAtMostOnce) {
  counts_.OnAcked(Push(kFirst, Clock(0), 2));
  Push(kSecond, Clock(0), 3);
  EXPECT_TRUE(AllowsFinal(2));
  EXPECT_TRUE(AllowsFinal(5));
  EXPECT_FALSE(AllowsFinal(0)) << "the acknowledged push is lost";
  EXPECT_FALSE(AllowsFinal(7)) << "a push is applied twice";
  EXPECT_EQ(counts_.CheckFinal(kKey, 7, {}), "at the end key 5 is 7, must be 2 to 5");
}

TEST_F(PushCountsTest, ValuesOfTheCheckpointAreAdded) {
  counts_.ResumeFrom({{kKey, 10.0f}, {Key{1}, 1.0f}});
  counts_.OnAcked(Push(kFirst, Clock(0), 2));
  EXPECT_TRUE(AllowsFinal(12));
  EXPECT_FALSE(AllowsFinal(2));
  EXPECT_EQ(counts_.Keys(), (std::vector<Key>{1, kKey}));
}

TEST_F(PushCountsTest, AWorkerSeesItsOwnPushesFromBeforeThePull) {
  Push(kFirst, Clock(0), 2);
  const std::size_t mark = counts_.issued();
  Push(kFirst, Clock(1), 4);
  const auto allows = [&](Incarnation worker, float value) {
    return counts_.CheckPulled({.incarnation = worker, .clock = Clock(1), .mark = mark}, kKey, value, 0).empty();
  };
  EXPECT_FALSE(allows(kFirst, 0));
  EXPECT_TRUE(allows(kFirst, 2));
  EXPECT_TRUE(allows(kSecond, 0)) << "asp has no bound";
}

TEST_F(PushCountsTest, PushesOfAnEndedWorkerCountUpToItsEnd) {
  counts_.OnAcked(Push(kFirst, Clock(0), 1));
  counts_.OnAcked(Push(kFirst, Clock(1), 2));
  ShowWorkers({{.incarnation = kFirst, .state = WorkerState::kEnded, .end = Clock(1)}, {.incarnation = kSecond}});
  EXPECT_EQ(counts_.TimesTrained(0), (std::vector<std::uint32_t>{1, 0, 0, 0}));
  EXPECT_EQ(counts_.TimesKept(0), (std::vector<std::uint32_t>{1, 0, 0, 0}));
  EXPECT_NE(counts_.CheckStopped(kKey, 0), "");
  EXPECT_EQ(counts_.CheckStopped(kKey, 1), "");
  EXPECT_EQ(counts_.CheckStopped(kKey, 3), "") << "a push after the end may be applied";
}

class AggregatedCountsTest : public PushCountsTest {
 protected:
  AggregatedCountsTest() : PushCountsTest(MakeTwoWorkers(ConsistencyMode::kBsp, ApplyMode::kAggregated)) {}
};

TEST_F(AggregatedCountsTest, AClockAddsTheMeanOverItsCohort) {
  Push(kFirst, Clock(0), 2);
  Push(kSecond, Clock(0), 4);
  Push(kFirst, Clock(1), 8);
  const PushCounts::Pulled pull{.incarnation = kFirst, .clock = Clock(1), .mark = counts_.issued()};
  EXPECT_EQ(counts_.CheckPulled(pull, kKey, 3, 0), "");
  EXPECT_EQ(counts_.CheckPulled(pull, kKey, 7, 0), "pull by incarnation 11 at clock 1: key 5 is 7, must be 3 to 3");
  EXPECT_EQ(counts_.CheckCut(Clock(1), kKey, 3), "");
  EXPECT_EQ(counts_.CheckCut(Clock(2), kKey, 7), "");
  EXPECT_NE(counts_.CheckCut(Clock(2), kKey, 3), "");
}

}  // namespace
}  // namespace tarn::sim

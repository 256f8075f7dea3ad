// Shows when a worker logs that a shard does not answer: not for pulls that wait for other workers, and not after a
// pause of the process.
#include "worker/runtime/shard_watch.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/client/two_tables.h"

namespace tarn::worker {
namespace {

constexpr TimeUs kSecond = 1'000'000;

class ShardWatchTest : public ::testing::Test {
 protected:
  ShardWatchTest() : plan_((fleet_.Run(), fleet_.MakePlan(kUsers, Keys(100)))) {}

  // The lines of so many seconds, with the second in which each was due.
  std::vector<std::pair<int, std::string>> Watch(int seconds) {
    std::vector<std::pair<int, std::string>> lines;
    for (int second = 1; second <= seconds; ++second) {
      fleet_.Wait(kSecond);
      for (std::string& line : watch_.Check(fleet_.client, fleet_.now)) lines.emplace_back(second, std::move(line));
    }
    return lines;
  }

  FakeFleet fleet_{TwoTables()};
  Plan plan_;
  ShardWatch watch_;
};

TEST_F(ShardWatchTest, NamesTheShardsThatNeverAnswerAndWhatTheWorkerWaitsFor) {
  EXPECT_TRUE(Watch(60).empty()) << "nothing is waited for";
  fleet_.Pull(plan_, Clock(0));
  EXPECT_TRUE(Watch(9).empty());
  const auto lines = Watch(15);
  ASSERT_EQ(lines.size(), 4u) << "two shards, after 10 and 20 s";
  EXPECT_EQ(lines[2].first, lines[0].first + 10);
  EXPECT_EQ(lines[1].second,
            "server 1: its shard 1 at fake://1 has not answered for 10 s, and this worker waits for 1 pull (is that "
            "server running, can this host reach that address, and do both have the same key file (--keys)?)");
  EXPECT_NE(lines[2].second.find("server 0: its shard 0 at fake://0 has not answered for 20 s"), std::string::npos);
  fleet_.Exchange();
  EXPECT_TRUE(Watch(60).empty()) << "it is answered";
}

TEST_F(ShardWatchTest, APullThatWaitsForOtherWorkersIsNotSilence) {
  for (FakeShard& shard : fleet_.shards) shard.minimum = Clock(0);
  fleet_.Pull(plan_, Clock(0));
  fleet_.Exchange();
  fleet_.Pull(plan_, Clock(1));
  fleet_.Exchange();
  EXPECT_TRUE(Watch(60).empty());
}

TEST_F(ShardWatchTest, PushesAndTicksMustBeAnsweredAlsoByAShardThatAnsweredBefore) {
  fleet_.Pull(plan_, Clock(0));
  fleet_.Exchange();
  fleet_.Tick({});
  fleet_.Push(plan_, fleet_.Gradients(plan_), Clock(0));
  const auto lines = Watch(15);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].second.find("waits for 1 push and a tick ("), std::string::npos) << lines[0].second;
}

TEST_F(ShardWatchTest, ANewAddressMustAnswerPullsAgain) {
  fleet_.Pull(plan_, Clock(0));
  fleet_.Exchange();
  View moved = fleet_.view;
  moved.version = ViewVersion(2);
  moved.routes.epoch = Epoch(2);
  moved.routes.endpoints[1] = "fake://elsewhere";
  fleet_.FromScheduler(ViewUpdate{moved});
  fleet_.Pull(plan_, Clock(1));
  const auto lines = Watch(15);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].second.find("shard 1 at fake://elsewhere"), std::string::npos) << lines[0].second;
}

TEST_F(ShardWatchTest, APauseOfTheProcessIsNotSilence) {
  fleet_.Pull(plan_, Clock(0));
  EXPECT_TRUE(Watch(5).empty());
  fleet_.Wait(3600 * kSecond);
  EXPECT_TRUE(Watch(9).empty());
  EXPECT_EQ(Watch(3).size(), 2u);
}

TEST_F(ShardWatchTest, NamesAFewShardsAndCountsTheOthers) {
  FleetOptions options = TwoTables();
  options.shards = 8;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.Pull(fleet.MakePlan(kUsers, Keys(200)), Clock(0));
  std::vector<std::string> lines;
  for (int second = 0; second < 15 && lines.empty(); ++second) {
    fleet.Wait(kSecond);
    lines = watch_.Check(fleet.client, fleet.now);
  }
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[3].ends_with("; 4 more shards do not answer")) << lines[3];
}

}  // namespace
}  // namespace tarn::worker

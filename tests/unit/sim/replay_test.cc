// Shows that a replay reports shards that differ from the recording, that wait in vain or that lack effects, and that
// it reports nothing once the recording is left.
#include "sim/trial/replay.h"

#include <gtest/gtest.h>

#include <string>

namespace tarn::sim {
namespace {

Tick TickTo(std::uint64_t clock) {
  Tick tick;
  tick.clock = Clock(clock);
  return tick;
}

// Of two shards; the second one has one effect, the first two.
Recording Recorded() {
  Recording recording;
  recording.effects = {{server::EffectOf(WorkerRank(0), TickTo(1)), server::EffectOf(WorkerRank(0), TickTo(2))},
                       {server::EffectOf(WorkerRank(0), TickTo(1))}};
  recording.begins.resize(1);
  return recording;
}

class ReplayTest : public ::testing::Test {
 protected:
  void Repeat(ShardId shard, std::uint64_t clock) { replay_.gate(shard)->OnTick(WorkerRank(0), TickTo(clock)); }
  // The error of a check; empty: none.
  std::string Check(TimeUs now) {
    const Status status = replay_.Check(now);
    return status ? "" : status.error().message;
  }

  Replay replay_{Recorded(), 100};
};

TEST_F(ReplayTest, ACompleteRepetitionIsOk) {
  Repeat(ShardId(0), 1);
  Repeat(ShardId(1), 1);
  EXPECT_EQ(Check(0), "");
  EXPECT_EQ(replay_.CheckComplete().error().message,
            "the job is done, but of its record for shard 0 only 1 of 2 effects were repeated; next is 'tick 0 0 2 0'");
  Repeat(ShardId(0), 2);
  EXPECT_TRUE(replay_.CheckComplete());
  EXPECT_EQ(replay_.repeated(), (std::vector<std::size_t>{2, 1}));
}

TEST_F(ReplayTest, ADifferenceIsAnError) {
  Repeat(ShardId(1), 5);
  EXPECT_EQ(Check(0), "shard 1 differs from its record: effect 1 is 'tick 0 0 5 0', expected 'tick 0 0 1 0'");
}

TEST_F(ReplayTest, AMinuteWithoutAnEffectIsAnError) {
  constexpr TimeUs kMinute = 60'000'000;
  EXPECT_EQ(Check(kMinute - 1), "");
  Repeat(ShardId(0), 1);
  EXPECT_EQ(Check(kMinute), "");
  EXPECT_EQ(Check(2 * kMinute - 1), "");
  EXPECT_NE(Check(2 * kMinute).find("cannot be repeated further"), std::string::npos);
}

TEST_F(ReplayTest, LeavingOpensTheGatesAndEndsTheChecks) {
  EXPECT_FALSE(replay_.IsOver(99));
  EXPECT_TRUE(replay_.IsOver(100));
  Repeat(ShardId(1), 5);
  replay_.Leave();
  EXPECT_TRUE(replay_.left());
  EXPECT_FALSE(replay_.IsOver(100)) << "it is left once";
  EXPECT_TRUE(replay_.begins(WorkerRank(0))->open);
  EXPECT_EQ(Check(0), "");
  EXPECT_TRUE(replay_.CheckComplete());
}

TEST(ReplayToTheEndTest, IsNeverOver) { EXPECT_FALSE(Replay(Recorded(), {}).IsOver(UINT64_MAX)); }

}  // namespace
}  // namespace tarn::sim

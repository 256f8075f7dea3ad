// Shows admission and expiry of rows in a shard: boundaries lie between the clocks that close (R4), a gradient whose
// key is not admitted is dropped and counted (R1), seconds are those of the wall clock, and timers sweep in slices
// (R6).
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

class ShardLifeTest : public ShardTest {
 protected:
  static TableSpec Table(const LifeSpec& life, ApplyMode apply = ApplyMode::kAggregated) {
    TableSpec spec = CountingTable(ConsistencyMode::kBsp, apply);
    spec.life = life;
    spec.life.on = true;
    return spec;
  }
  float Value(Key key) const { return shard_->rows().Values(kTable, key).value()[0]; }
};

TEST_F(ShardLifeTest, ATickThatJumpsPassesEachBoundaryBetweenTheClocksItCloses) {
  Join({LiveWorker(0, 10)}, Table({.expire_clocks = 8, .sweep_clocks = 10}));
  const Key key = KeyIn(0);
  Deliver(PushOf(0, 10, key, 1, 5));
  Deliver(PushOf(0, 10, key, 2, 15));  // not too late
  Deliver(PushOf(0, 10, key, 3, 32));  // too late: the row expired at clock 30
  Tick(0, 10, 33);
  EXPECT_EQ(events_.closed.size(), 3u);
  EXPECT_EQ(Value(key), -1.0f);
  EXPECT_EQ(shard_->rows().counters().expired, 1u);
  EXPECT_EQ(shard_->rows().counters().admitted, 2u);
}

TEST_F(ShardLifeTest, ARowExpiresAtItsBoundaryAndThenReadsAsItsInitialValue) {
  Join({LiveWorker(0, 10)}, Table({.expire_clocks = 3, .sweep_clocks = 10}));
  const Key key = KeyIn(1);
  Deliver(PushOf(0, 10, key, 1, 0));
  Tick(0, 10, 9);
  EXPECT_EQ(Value(key), -1.0f);
  Tick(0, 10, 10);
  EXPECT_EQ(Value(key), 0.0f);
  EXPECT_EQ(shard_->rows().row_count(), 0u);
  EXPECT_TRUE(shard_->rows().expiry().sweeping());
  const std::uint64_t hash = shard_->StateHash().value();
  while (shard_->rows().expiry().sweeping()) {
    now_ = std::max(now_, shard_->NextTimer());
    shard_->OnTimer(now_, &out_);
  }
  EXPECT_EQ(shard_->StateHash().value(), hash);  // the sweep is not observable
}

TEST_F(ShardLifeTest, GradientsOfKeysWithoutARowAreAcknowledgedDroppedAndCounted) {
  Join({LiveWorker(0, 10)}, Table({.admit_count = 3}, ApplyMode::kImmediate));
  const Key key = KeyIn(2);
  for (std::uint64_t push = 1; push <= 4; ++push) {
    out_.clear();
    Deliver(PushOf(0, 10, key, push, 0));
    const auto acks = Take<PushAck>();
    ASSERT_EQ(acks.size(), 1u);
    EXPECT_EQ(acks[0].sections[0].code, ErrorCode::kOk);
    EXPECT_EQ(Value(key), push < 3 ? 0.0f : -static_cast<float>(push - 2));
  }
  EXPECT_EQ(shard_->rows().counters().refused, 2u);
  EXPECT_EQ(shard_->rows().counters().admitted, 1u);
}

TEST_F(ShardLifeTest, SecondsAreThoseOfTheWallClock) {
  ShardOptions options;
  options.unix_us = [](TimeUs now) { return now + 1'700'000'000'000'000; };
  Join({LiveWorker(0, 10)}, Table({.expire_seconds = 16}, ApplyMode::kImmediate), options);
  EXPECT_EQ(shard_->rows().expiry().seconds(), 1'700'000'000u + static_cast<std::uint64_t>(now_) / 1'000'000);
  const Key key = KeyIn(3);
  Deliver(PushOf(0, 10, key, 1, 0));
  for (int second = 0; second < 16; ++second) {
    EXPECT_EQ(Value(key), -1.0f) << second;
    now_ += 1'000'000;
    FromScheduler(HeartbeatAck{view_.version});
    shard_->OnTimer(now_, &out_);
  }
  for (int second = 0; second < 3; ++second) {
    now_ += 1'000'000;
    shard_->OnTimer(now_, &out_);
  }
  EXPECT_EQ(Value(key), 0.0f);
}

}  // namespace
}  // namespace tarn::server

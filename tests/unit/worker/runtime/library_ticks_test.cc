// Shows how the clock of a program advances: by its ticks, by PushPull, and by rows of a later clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/worker/client/fake_world.h"
#include "worker/tarn.h"

namespace tarn {
namespace {

// Rule C8. The first rows come from clock 8: the push of that batch and the next ticks follow from there.
TEST(LibraryTicks, ALateProgramContinuesAtTheOpenClock) {
  FakeWorld world;
  world.view.tables[0].consistency.backup_workers = 1;
  for (FakeShard& shard : world.shards) shard.told_minimum = Clock(8);
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {7, 1ull << 63};
  ASSERT_TRUE(client->Pull(*users, keys).Wait());
  EXPECT_EQ(client->clock(), Clock(8));
  const auto pushed = client->Push(*users, keys, std::vector<float>(6, 1.0f));
  EXPECT_TRUE(client->Tick(LeasePosition{LeaseId(3), 20}).Wait());
  EXPECT_TRUE(pushed.Ready());
  EXPECT_EQ(client->clock(), Clock(9));
  for (FakeShard& shard : world.shards) shard.told_minimum = Clock(11);
  const auto both = client->PushPull(*users, keys, std::vector<float>(6, 1.0f));
  ASSERT_TRUE(both.pulled.Wait());
  EXPECT_EQ(client->clock(), Clock(11));
  EXPECT_EQ(client->counters().skipped_clocks, 9u);
  EXPECT_TRUE(client->Leave());
  for (const FakeShard& shard : world.shards) {
    EXPECT_EQ(shard.ticked, Clock(11));
    ASSERT_EQ(shard.applied.size(), 2u);
    EXPECT_EQ(shard.applied[0].clock, Clock(8));
    EXPECT_EQ(shard.applied[1].clock, Clock(9));
  }
  EXPECT_NE(std::ranges::find(world.ticks, DataPosition{LeaseId(3), 20}), world.ticks.end());
}

TEST(LibraryTicks, PushPullTicksAndPullsTheNextClock) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {1, 2, 1};
  const auto both = client->PushPull(*users, keys, std::vector<float>(9, 1.0f));
  EXPECT_EQ(client->clock(), Clock(1));
  EXPECT_TRUE(both.pushed.Wait());
  const auto values = both.pulled.Wait();
  ASSERT_TRUE(values);
  EXPECT_EQ(values->size(), 9u);
}

TEST(LibraryTicks, ATickTooFarAheadIsRefusedAndTheClockStays) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  EXPECT_EQ(client->TickTo(Clock(~std::uint64_t{0})).Wait().error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client->TickTo(Clock((1u << 30) + 1)).Wait().error().message,
            "tick to clock 1073741825 from 0: expected at most 1073741824 clocks at once");
  EXPECT_EQ(client->clock(), Clock(0));
  EXPECT_TRUE(client->TickTo(Clock(1u << 30)).Wait());
  EXPECT_TRUE(client->Leave());
  for (const FakeShard& shard : world.shards) EXPECT_EQ(shard.ticked, Clock(1u << 30));
}

TEST(LibraryTicks, ATickWithoutAPositionKeepsTheLastOne) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {1};
  const LeasePosition first{LeaseId(3), 64}, second{LeaseId(3), 128};
  EXPECT_TRUE(client->Tick(first).Wait());
  EXPECT_TRUE(client->Tick().Wait());
  EXPECT_TRUE(client->PushPull(*users, keys, std::vector<float>(3)).pulled.Wait());
  EXPECT_TRUE(client->TickTo(Clock(10)).Wait());
  EXPECT_TRUE(client->PushPull(*users, keys, std::vector<float>(3), second).pulled.Wait());
  EXPECT_TRUE(client->TickTo(Clock(20)).Wait());
  EXPECT_TRUE(client->Leave());
  const DataPosition at_first{first.lease, first.rows}, at_second{second.lease, second.rows};
  EXPECT_EQ(world.ticks, (std::vector{at_first, at_first, at_first, at_first, at_second, at_second}));
}

}  // namespace
}  // namespace tarn

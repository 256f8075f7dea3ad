// Shows that keys which a shard holds are sent once, and that messages which name a list that the shard no longer holds
// are sent again with their keys, at once and in order (rules W3 and W4).
#include <gtest/gtest.h>

#include "tests/unit/worker/client/two_tables.h"

namespace tarn::worker {
namespace {

// Pulls some keys, and then pushes them.
void PullThenPush(FakeFleet* fleet, const Plan& plan) {
  fleet->Pull(plan, Clock(0));
  fleet->Exchange();
  fleet->Push(plan, fleet->Gradients(plan), Clock(0));
}

// Calls visit(shard, push) for each push that waits to be sent; returns their number.
template <typename Visit>
std::size_t ForEachPush(const FakeFleet& fleet, Visit visit) {
  std::size_t pushes = 0;
  for (const Outgoing& o : fleet.out)
    if (const auto* push = std::get_if<Push>(&o.message.body)) {
      ++pushes;
      visit(o.to, OnlyTable(*push));
    }
  return pushes;
}

TEST(ClientHeldLists, W3PulledKeysAreNotSentAgain) {
  FakeFleet fleet(TwoTables());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(1000));
  PullThenPush(&fleet, plan);
  const std::size_t pushes = ForEachPush(fleet, [](Peer, const PushPart& push) {
    EXPECT_EQ(push.keys.codec, KeyCodec::kHeld);
    EXPECT_TRUE(push.keys.frame.empty());
  });
  EXPECT_GT(pushes, 0u);
  EXPECT_EQ(fleet.client.counters().push_bytes, 1000u * 16);
  EXPECT_EQ(fleet.client.counters().pull_bytes, 1000u * (16 + 8));
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  const auto sums = AppliedSums(fleet);
  EXPECT_EQ(sums.size(), 1000u);
  for (const auto& [key, sum] : sums) EXPECT_EQ(sum, float(key.second % 1000));
}

TEST(ClientHeldLists, W3KeysAreSentAgainInSharedMemory) {
  FleetOptions options = TwoTables();
  options.client.shm = true;
  FakeFleet fleet(std::move(options));
  fleet.view.routes.endpoints[1] = "ipc:///run/shard-1";
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(1000));
  PullThenPush(&fleet, plan);
  const std::size_t pushes = ForEachPush(fleet, [](Peer shard, const PushPart& push) {
    EXPECT_EQ(push.keys.codec == KeyCodec::kHeld, shard == ShardPeer(ShardId(0)));
  });
  EXPECT_GE(pushes, 2u);
}

TEST(ClientHeldLists, W3KeysAreSentAgainIfTheJobWantsIt) {
  FleetOptions options = TwoTables();
  FakeFleet fleet(options);
  fleet.job.train.key_caching = false;
  fleet.Run();
  PullThenPush(&fleet, fleet.MakePlan(kUsers, Keys(1000)));
  EXPECT_EQ(fleet.client.counters().push_bytes, 1000u * (16 + 8));
  ForEachPush(fleet, [](Peer, const PushPart& push) { EXPECT_EQ(push.keys.list, 0u); });
}

TEST(ClientHeldLists, W4PushesOfUnknownListsAreSentAgainWithKeysOnceAndInOrder) {
  FleetOptions options = TwoTables();
  options.shards = 1;
  options.heartbeat_seconds = 1;
  FakeFleet fleet(options);
  fleet.Run();
  const Plan a = fleet.MakePlan(kUsers, Keys(100)), b = fleet.MakePlan(kItems, Keys(100, 1));
  for (const Plan* plan : {&a, &b}) fleet.Pull(*plan, Clock(0));
  fleet.Exchange();
  fleet.shards[0].lists.clear();
  for (const Plan* plan : {&a, &b, &a, &b}) fleet.Push(*plan, fleet.Gradients(*plan), Clock(0));
  fleet.Pull(a, Clock(0));
  fleet.Exchange();
  EXPECT_TRUE(fleet.client.idle());  // without a pause
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 4u);
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 3u);
  EXPECT_GE(fleet.client.counters().unknown_lists, 1u);
  for (const auto& [key, sum] : AppliedSums(fleet)) EXPECT_EQ(sum, 2 * float(key.second % 1000));
  // For a heartbeat period no lists are named to the shard; then they are used again.
  const auto lists = fleet.shards[0].lists.size();
  PullThenPush(&fleet, a);
  fleet.Exchange();
  EXPECT_EQ(fleet.shards[0].lists.size(), lists);
  fleet.Wait(2'000'000);
  PullThenPush(&fleet, a);
  EXPECT_EQ(ForEachPush(fleet, [](Peer, const PushPart& push) { EXPECT_EQ(push.keys.codec, KeyCodec::kHeld); }), 1u);
}

TEST(ClientHeldLists, W4RandomLossesOfMessagesAndListsLoseNothing) {
  FleetOptions options = TwoTables();
  options.client.piece_bytes = 1000;
  options.client.held_keys_bytes = 2000;
  options.heartbeat_seconds = 0.1;
  FakeFleet fleet(options);
  fleet.Run();
  SplitMix random(9);
  fleet.lose = [&](const Message&) {
    if (random.Chance(0.05)) fleet.shards[random.Below(fleet.shards.size())].lists.clear();
    return random.Chance(0.2);
  };
  std::uint64_t pushed[3] = {};
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t salt = random.Below(3);
    ++pushed[salt];
    PullThenPush(&fleet, fleet.MakePlan(kUsers, Keys(150, salt)));
    fleet.Wait(300'000);
    fleet.Exchange();
  }
  for (int i = 0; i < 2000 && !fleet.client.idle(); ++i) {
    fleet.Wait(300'000);
    fleet.Exchange();
  }
  EXPECT_TRUE(fleet.client.idle());
  EXPECT_GT(fleet.client.counters().unknown_lists, 10u);
  const auto sums = AppliedSums(fleet);
  for (std::uint64_t salt = 0; salt < 3; ++salt)
    for (Key key : Keys(150, salt)) EXPECT_EQ(sums.at({kUsers, key}), float(pushed[salt]) * float(key % 1000));
}

}  // namespace
}  // namespace tarn::worker

// Shows the threaded library over a transport to scripted shards in this process: pulls and pushes with duplicate keys,
// many threads at once, waits that time out, futures that outlive the client. library_errors_test.cc shows its errors.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/hash.h"
#include "tests/unit/worker/client/fake_world.h"
#include "worker/tarn.h"

namespace tarn {
namespace {

TEST(Library, PullsOneRowPerKeyWithDuplicates) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client) << ToString(client.error());
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  EXPECT_EQ(users->dim(), 3u);
  const std::vector<Key> keys = {7, 1ull << 60, 7, 3, 3, 3};
  const auto rows = client->Pull(*users, keys);
  const auto values = rows.Wait();
  ASSERT_TRUE(values) << ToString(values.error());
  ASSERT_EQ(values->size(), keys.size() * 3);
  for (std::size_t i = 0; i < values->size(); ++i)
    EXPECT_EQ((*values)[i], worker::ValueOf(users->id(), keys[i / 3], std::uint32_t(i % 3)));
  EXPECT_TRUE(rows.Ready());
  EXPECT_TRUE(client->Leave());
  EXPECT_EQ(client->Pull(*users, keys).Wait().error().code, ErrorCode::kCancelled);
}

TEST(Library, ConnectsToShardsWithTheJobsNumberOfLanes) {
  FakeWorld world;
  Job job;
  job.fleet.lanes = 4;
  world.job_text = ToToml(job);
  ASSERT_TRUE(ConnectTo(&world));
  EXPECT_EQ(world.lanes[ShardPeer(ShardId(0))], 4u);
  EXPECT_EQ(world.lanes[ShardPeer(ShardId(1))], 4u);
}

TEST(Library, PrefetchSendsEachKeyOnce) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  EXPECT_TRUE(client->Prefetch(*users, std::vector<Key>{7, 1ull << 60, 7, 3}));
  EXPECT_TRUE(client->Pull(*users, std::vector<Key>{7}).Wait());
  EXPECT_TRUE(client->Leave());
  EXPECT_EQ(world.prefetched, 3u);
}

TEST(Library, PushesTheSumOfDuplicatesAndTicksAfterIt) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {7, 9, 7};
  const std::vector<float> gradients = {1, 2, 3, 10, 20, 30, 100, 200, 300};
  const auto pushed = client->Push(*users, keys, gradients);
  EXPECT_EQ(client->clock(), Clock(0));
  const auto ticked = client->Tick();
  EXPECT_EQ(client->clock(), Clock(1));
  EXPECT_TRUE(ticked.Wait());
  EXPECT_TRUE(pushed.Ready());
  EXPECT_TRUE(client->TickTo(Clock(1)).Wait());  // not ahead
  EXPECT_TRUE(client->Leave());
  std::map<Key, float> sums;
  for (const FakeShard& shard : world.shards) {
    EXPECT_EQ(shard.ticked, Clock(1));
    for (const auto& applied : shard.applied)
      for (std::size_t i = 0; i < applied.keys.size(); ++i) sums[applied.keys[i]] += applied.values[3 * i + 2];
  }
  EXPECT_EQ(sums, (std::map<Key, float>{{7, 303.0f}, {9, 30.0f}}));
}

TEST(Library, AssignsAndDeletesRows) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  EXPECT_TRUE(client->Assign(*users, std::vector<Key>{9, 4, 9}, std::vector<float>{1, 1, 1, 2, 2, 2, 3, 3, 3}).Wait());
  EXPECT_TRUE(client->Delete(*users, std::vector<Key>{4, 4}).Wait());
  std::map<Key, float> assigned;
  std::vector<Key> deleted;
  for (const FakeShard& shard : world.shards)
    for (const auto& applied : shard.applied) {
      for (std::size_t i = 0; i < applied.keys.size(); ++i)
        if (applied.values.empty())
          deleted.push_back(applied.keys[i]);
        else
          assigned[applied.keys[i]] = applied.values[i * 3];
    }
  EXPECT_EQ(assigned, (std::map<Key, float>{{4, 2.0f}, {9, 3.0f}})) << "the last row of a key counts";
  EXPECT_EQ(deleted, std::vector<Key>{4});
  const Status infinite =
      client->Assign(*users, std::vector<Key>{4}, std::vector<float>{1, std::numeric_limits<float>::infinity(), 1})
          .Wait();
  EXPECT_EQ(infinite.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(infinite.error().message,
            "table 'users': the value of key 4 is inf at value 1, expected a finite number; nothing of this assignment "
            "was sent");
  EXPECT_EQ(client->Assign(*users, std::vector<Key>{4}, std::vector<float>{1}).Wait().error().message,
            "table 'users': 1 values for 1 keys, expected 3");
}

TEST(Library, ANewTableIsCheckedAsTheJobRunsIt) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  TableSpec spec = SparseTable("items", 4);
  spec.consistency.mode = ConsistencyMode::kAsp;  // with apply = "aggregated" invalid, and ignored
  EXPECT_TRUE(client->OpenTable(spec));
  spec.name = "caf\xe9";
  EXPECT_EQ(client->OpenTable(spec).error().code, ErrorCode::kInvalidArgument);
}

TEST(Library, PlansLeasesBarriersAndTables) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto items = client->OpenTable(SparseTable("items", 4));
  ASSERT_TRUE(items) << ToString(items.error());
  const std::vector<Key> keys = {5, 6, 5};
  auto plan = client->MakePlan(*items, keys);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->keys().size(), 2u);
  ASSERT_EQ(plan->index().size(), 3u);
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(plan->keys()[plan->index()[i]], keys[i]);
  EXPECT_EQ(plan->table().id(), items->id());
  const auto rows = client->Pull(*plan, {.use_clock = Clock(0)});
  const auto values = rows.Wait();
  ASSERT_TRUE(values);
  EXPECT_EQ(values->size(), 2u * 4);  // one row per unique key
  EXPECT_EQ(rows.staleness(), 0u);
  EXPECT_TRUE(client->Push(*plan, Buffer::CopyOf(*values), {.pulled_clock = Clock(0)}).Wait());
  for (const std::size_t bytes : {4u, 5u})
    EXPECT_EQ(client->Push(*plan, Buffer::Allocate(bytes)).Wait().error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(client->Barrier());
  const auto leases = client->RequestLeases({.want = 1});
  ASSERT_TRUE(leases);
  EXPECT_TRUE(leases->finished);
  EXPECT_TRUE(leases->granted.empty());
  EXPECT_FALSE(leases->tick_to);
  EXPECT_EQ(client->counters().pulls, 1u);
  EXPECT_EQ(client->staleness(), (std::vector<std::uint64_t>{1}));
}

TEST(Library, PullsIntoTheCallersMemory) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {7, 1ull << 60, 7, 3};
  std::vector<float> out(keys.size() * 3 + 1, -1.0f);
  const std::span<float> rows_of_keys = std::span(out).first(keys.size() * 3);
  const auto rows = client->Pull(*users, keys, {.out = rows_of_keys});
  const auto values = rows.Wait();
  ASSERT_TRUE(values) << ToString(values.error());
  EXPECT_EQ(values->data(), out.data());
  EXPECT_EQ(values->size(), keys.size() * 3);
  for (std::size_t i = 0; i < values->size(); ++i)
    EXPECT_EQ(out[i], worker::ValueOf(users->id(), keys[i / 3], std::uint32_t(i % 3)));
  EXPECT_EQ(out.back(), -1.0f);

  const auto plan = client->MakePlan(*users, keys);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(client->Pull(*plan, {.out = std::span(out).first(9)}).Wait());
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_EQ(out[i], worker::ValueOf(users->id(), plan->keys()[i / 3], std::uint32_t(i % 3)));
  for (const auto& wrong : {client->Pull(*users, keys, {.out = out}), client->Pull(*plan, {.out = out})})
    EXPECT_EQ(wrong.Wait().error().code, ErrorCode::kInvalidArgument);
}

TEST(Library, NothingIsWrittenOnceTheLastFutureIsDropped) {
  FakeWorld world;
  for (FakeShard& shard : world.shards) shard.minimum = Clock(0);
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  client->Tick();
  const std::vector<Key> keys = {1, 2, 1};
  std::vector<float> dropped(9, -1.0f), kept(9, -1.0f);
  std::optional<RowsFuture> first = client->Pull(*users, keys, {.out = dropped});  // of clock 1: held back
  std::optional<RowsFuture> copy = client->Pull(*users, keys, {.out = kept});
  const RowsFuture kept_rows = *copy;
  EXPECT_FALSE(kept_rows.Ready());
  first.reset();
  copy.reset();
  world.Release(Clock(1));
  EXPECT_TRUE(kept_rows.Wait());
  EXPECT_TRUE(client->Barrier()) << "both are answered";
  EXPECT_EQ(dropped, std::vector<float>(9, -1.0f));
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(kept[i], worker::ValueOf(users->id(), keys[i / 3], std::uint32_t(i % 3)));
}

TEST(Library, PullsAndPushesSeveralTablesInOneCall) {
  FakeWorld world;
  world.AddTable(SparseTable("items", 5));
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  const auto users = client->OpenTable("users"), items = client->OpenTable("items");
  ASSERT_TRUE(users && items);
  const std::vector<Key> user_keys = {1, 2, 1}, item_keys = {8, 9}, none;
  std::vector<float> out(10);
  const std::vector<TablePull> pulls = {{*users, user_keys, {}}, {*items, item_keys, out}, {*users, none, {}}};
  const auto rows = client->PullMany(pulls);
  const auto of_users = rows.Wait(), of_items = rows.Wait(1), of_none = rows.Wait(2);
  ASSERT_TRUE(of_users && of_items && of_none);
  ASSERT_EQ(of_users->size(), 9u);
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_EQ((*of_users)[i], worker::ValueOf(users->id(), user_keys[i / 3], std::uint32_t(i % 3)));
  EXPECT_EQ(of_items->data(), out.data());
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(out[i], worker::ValueOf(items->id(), item_keys[i / 5], std::uint32_t(i % 5)));
  EXPECT_TRUE(of_none->empty());
  EXPECT_EQ(rows.Wait(3).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client->counters().pulls, 3u);
  EXPECT_TRUE(client->PullMany({}).Wait());

  const std::vector<float> user_gradients(9, 1.0f), item_gradients(10, 2.0f);
  std::vector<TablePush> pushes = {{*users, user_keys, user_gradients}, {*items, item_keys, item_gradients}};
  EXPECT_TRUE(client->PushMany(pushes).Wait());
  EXPECT_TRUE(client->PushMany({}).Wait());
  pushes[1].gradients = user_gradients;  // a wrong size
  EXPECT_EQ(client->PushMany(pushes).Wait().error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(client->Leave());
  std::map<std::pair<TableId, Key>, float> sums;
  for (const FakeShard& shard : world.shards)
    for (const auto& applied : shard.applied)
      for (std::size_t i = 0; i < applied.keys.size(); ++i)
        sums[{applied.table, applied.keys[i]}] += applied.values[i * applied.values.size() / applied.keys.size()];
  const std::map<std::pair<TableId, Key>, float> expected = {
      {{users->id(), 1}, 2}, {{users->id(), 2}, 1}, {{items->id(), 8}, 2}, {{items->id(), 9}, 2}};
  EXPECT_EQ(sums, expected) << "nothing of what was refused";
}

TEST(Library, HeldGradientsAreReleasedOnceAcknowledged) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const auto plan = client->MakePlan(*users, std::vector<Key>{1, 2});
  ASSERT_TRUE(plan);
  alignas(8) float gradients[6] = {1, 2, 3, 4, 5, 6};
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = owner;
  const auto pushed = client->Push(
      *plan, Buffer::Hold(reinterpret_cast<std::byte*>(gradients), sizeof(gradients), std::exchange(owner, nullptr)));
  EXPECT_TRUE(pushed.Wait());
  while (!watched.expired()) std::this_thread::yield();
}

TEST(Library, OfTwoThreadsThatDisagreeAboutATableOneIsRefused) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  for (int round = 0; round < 200; ++round) {
    const std::string name = "items" + std::to_string(round);
    std::barrier begin(2);
    std::atomic<int> opened = 0, refused = 0;
    const auto open = [&](std::uint32_t dim) {
      begin.arrive_and_wait();
      const auto table = client->OpenTable(SparseTable(name, dim));
      if (table && table->dim() == dim) ++opened;
      if (!table && table.error().code == ErrorCode::kAlreadyExists) ++refused;
    };
    std::thread other(open, 4);
    open(8);
    other.join();
    EXPECT_EQ(opened, 1);
    EXPECT_EQ(refused, 1);
  }
}

TEST(Library, AnInfiniteTimeoutWaitsForever) {
  FakeWorld world;
  auto client = ConnectTo(&world, std::numeric_limits<double>::infinity());
  ASSERT_TRUE(client) << ToString(client.error());
  EXPECT_TRUE(client->OpenTable("users"));
  for (const double seconds : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(ConnectTo(&world, seconds).error().code, ErrorCode::kInvalidArgument) << seconds;
}

TEST(Library, ManyThreadsShareAClient) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 50; ++i) {
        std::vector<Key> keys(20);
        for (std::size_t k = 0; k < keys.size(); ++k) keys[k] = Mix64(t * 1000 + i * 20 + k / 2);
        const auto rows = client->Pull(*users, keys);
        const auto pushed = client->Push(*users, keys, std::vector<float>(keys.size() * 3, 1.0f));
        const auto values = rows.Wait();
        if (!values || !pushed.Wait()) {
          ++wrong;
          continue;
        }
        for (std::size_t k = 0; k < values->size(); ++k)
          wrong += (*values)[k] != worker::ValueOf(users->id(), keys[k / 3], std::uint32_t(k % 3));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(client->Leave());
  float total = 0;
  for (const FakeShard& shard : world.shards)
    for (const auto& applied : shard.applied)
      for (std::size_t i = 0; i < applied.keys.size(); ++i) total += applied.values[3 * i];
  EXPECT_EQ(total, 4 * 50 * 20.0f);
}

TEST(Library, AWaitThatTimedOutMayBeRepeated) {
  FakeWorld world;
  world.deaf = true;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {4, 4};
  const auto rows = client->Pull(*users, keys);
  const auto pushed = client->Push(*users, keys, std::vector<float>(6, 1.0f));
  constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
  for (const double seconds : {-1.0, 0.0, 0.01, kNotANumber}) {
    EXPECT_EQ(rows.WaitFor(seconds).error().code, ErrorCode::kTimeout) << seconds;
    EXPECT_EQ(pushed.WaitFor(seconds).error().code, ErrorCode::kTimeout) << seconds;
  }
  {
    const std::lock_guard lock(world.mutex);
    world.deaf = false;  // the next repeat arrives
  }
  const auto values = rows.WaitFor(std::numeric_limits<double>::infinity());
  ASSERT_TRUE(values);
  EXPECT_EQ(values->size(), 6u);
  EXPECT_TRUE(pushed.WaitFor(1e300));
  EXPECT_TRUE(pushed.WaitFor(0));
}

TEST(Library, FuturesOutliveTheClient) {
  FakeWorld world;
  for (FakeShard& shard : world.shards) shard.minimum = Clock(0);
  std::optional<RowsFuture> done, undone;
  const std::vector<Key> keys = {1, 2, 3};
  {
    auto client = ConnectTo(&world);
    ASSERT_TRUE(client);
    auto users = client->OpenTable("users");
    ASSERT_TRUE(users);
    done.emplace(client->Pull(*users, keys));
    ASSERT_TRUE(done->Wait());
    client->Tick();
    undone.emplace(client->Pull(*users, keys));
    Client moved = std::move(*client);
  }
  EXPECT_EQ(done->Wait()->size(), 9u);
  EXPECT_EQ(undone->Wait().error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace tarn

// Shows the threaded library over a transport to scripted shards in this process: pulls and pushes with duplicate keys,
// many threads at once, a caller that blocks at a limit, errors, leaving and being stopped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
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

TEST(Library, ZeroIoThreadsAreRefused) {
  const auto client = Client::Connect({.scheduler = "tcp://127.0.0.1:1", .io_threads = 0});
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().message, "io_threads: expected at least 1, found 0");
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

// Rule A5: a refused push takes no sequence, so the next push is the first one.
TEST(Library, RefusesGradientsThatAreNotFinite) {
  FakeWorld world;
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  const std::vector<Key> keys = {1, 42, 1};
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> gradients(9, 1.0f);
    gradients[5] = bad;  // of key 42
    const auto check = [](const Status& status) {
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(status.error().message.find("table 'users': the gradient of key 42 is "), std::string::npos)
          << status.error().message;
    };
    check(client->Push(*users, keys, gradients).Wait());
    const auto both = client->PushPull(*users, keys, gradients);
    check(both.pushed.Wait());
    EXPECT_FALSE(both.pulled.Wait());
    EXPECT_EQ(client->clock(), Clock(0));
    const auto plan = client->MakePlan(*users, std::vector<Key>{42});
    ASSERT_TRUE(plan);
    check(client->Push(*plan, Buffer::CopyOf(std::span<const float>(std::vector<float>(3, bad)))).Wait());
  }
  // Two gradients of one key, each finite, whose sum overflows.
  std::vector<float> large(9, 1.0f);
  large[0] = large[6] = 3e38f;
  EXPECT_EQ(client->Push(*users, keys, large).Wait().error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(client->Push(*users, keys, std::vector<float>(9, 1.0f)).Wait());
  for (const FakeShard& shard : world.shards)
    for (const auto& applied : shard.applied)
      for (const float value : applied.values) EXPECT_TRUE(std::isfinite(value));
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

TEST(Library, RefusesInvalidArgumentsBeforeAnythingIsSent) {
  FakeWorld world;
  TableSpec dense = worker::DenseTable("weights", 2, 10);
  world.AddTable(dense);
  auto client = ConnectTo(&world, 0.2);
  ASSERT_TRUE(client);
  auto weights = client->OpenTable("weights");
  ASSERT_TRUE(weights);
  const std::vector<Key> last = {9}, beyond = {10};
  EXPECT_TRUE(client->Pull(*weights, last).Wait());
  EXPECT_EQ(client->Pull(*weights, beyond).Wait().error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client->Push(*weights, last, std::vector<float>(3)).Wait().error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client->OpenTable("nobody").error().code, ErrorCode::kTimeout);
  EXPECT_EQ(client->OpenTable(worker::DenseTable("bad", 0, 10)).error().code, ErrorCode::kInvalidArgument);
  FakeWorld other;  // a second one, because two clients on one transport would receive each other's messages
  auto second = ConnectTo(&other);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->OpenTable("users")->dim(), 3u);
}

TEST(Library, ConnectTimesOutOrReturnsTheReasonOfARefusal) {
  FakeWorld world;
  world.welcome_all = false;
  EXPECT_EQ(ConnectTo(&world, 0.1).error().code, ErrorCode::kTimeout);
  world.FromScheduler(Shutdown{ErrorCode::kWrongJob, "another version"});
  EXPECT_EQ(ConnectTo(&world).error().code, ErrorCode::kWrongJob);
  ConnectOptions options;
  options.scheduler = "nonsense";
  EXPECT_EQ(Client::Connect(options, std::make_unique<FakeTransport>(&world)).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(Library, ConnectReportsWhatItWaitsFor) {
  const auto path = (std::filesystem::temp_directory_path() / ("tarn-library-" + std::to_string(::getpid()))).string();
  for (const auto& [says_wait, text] :
       {std::pair(false, "the scheduler at fake://scheduler has been silent for "),
        {true, "the scheduler at fake://scheduler has had no place for this worker for "}}) {
    ASSERT_TRUE(InitLog({.role = "test", .path = path}));
    FakeWorld world;
    world.welcome_all = false;
    world.says_wait = says_wait;
    ConnectOptions options;
    options.scheduler = "fake://scheduler";
    options.timeout_seconds = 0.5;
    options.wait_note_seconds = 0.2;
    const auto client = Client::Connect(options, std::make_unique<FakeTransport>(&world));
    ASSERT_FALSE(client);
    EXPECT_EQ(client.error().code, ErrorCode::kTimeout);
    EXPECT_TRUE(client.error().message.starts_with(text)) << client.error().message;
    const std::string log = ReadFile(path, 1 << 20).value();
    EXPECT_EQ(std::ranges::count(log, '\n'), 2) << log;
    EXPECT_NE(log.find(text), std::string::npos) << log;
    EXPECT_NE(log.find("; gives up in 0 s"), std::string::npos) << log;
    std::filesystem::remove(path);
  }
  ASSERT_TRUE(InitLog({.role = "test", .path = ""}));
}

TEST(Library, UnreadPullsAreBounded) {
  FakeWorld world;
  for (FakeShard& shard : world.shards) shard.minimum = Clock(0);
  ConnectOptions options;
  options.scheduler = "fake://scheduler";
  options.asked_bytes_max = 2 * (8 + 3 * 4);  // two keys
  auto client = Client::Connect(options, std::make_unique<FakeTransport>(&world));
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  client->Tick();
  const auto pull = [&](std::vector<Key> keys) { return client->Pull(*users, keys); };
  const auto large = pull({1, 2, 3});  // of clock 1: held back
  EXPECT_FALSE(large.Ready());
  const auto refused = pull({4});
  EXPECT_EQ(refused.Wait().error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(refused.Wait().error().message,
            "a pull of table 'users' is for 20 bytes, and pulls of 60 bytes are not answered yet: expected at most 40 "
            "together (ConnectOptions::asked_bytes_max); wait for earlier ones first");
  const std::vector<TablePull> twice(2, TablePull{*users, std::vector<Key>{}, {}});
  EXPECT_EQ(client->PullMany(twice).Wait().error().message,
            "a pull of table 'users' and table 'users' is for 0 bytes, and pulls of 60 bytes are not answered yet: "
            "expected at most 40 together (ConnectOptions::asked_bytes_max); wait for earlier ones first");
  const auto both = client->PushPull(*users, std::vector<Key>{4}, std::vector<float>(3, 1));
  EXPECT_TRUE(both.pushed.Wait());
  EXPECT_EQ(both.pulled.Wait().error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(client->clock(), Clock(2));
  world.Release(Clock(1));
  EXPECT_TRUE(large.Wait());
  client->Tick();
  const auto first = pull({4}), second = pull({5});
  EXPECT_EQ(pull({6}).Wait().error().code, ErrorCode::kOverloaded);
  EXPECT_FALSE(first.Ready());
  EXPECT_FALSE(second.Ready());
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

// The first pull cannot allocate the cache that the job wants. This ends the client while several threads send
// requests.
TEST(Library, RequestsDuringTheEndOfTheClientGetItsError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end a process that asks for so much memory";
#endif
  Job job;
  job.worker_cache.bytes = std::uint64_t{1} << 60;
  for (int round = 0; round < 20; ++round) {
    FakeWorld world;
    world.job_text = ToToml(job);
    auto client = ConnectTo(&world);
    ASSERT_TRUE(client) << ToString(client.error());
    const auto users = client->OpenTable("users");
    ASSERT_TRUE(users);
    const std::vector<Key> keys = {1, 2, 3};
    const std::vector<float> gradients(9, 1);
    std::atomic<int> fine = 0;
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        const auto [pushed, pulled] = client->PushPull(*users, keys, gradients);
        if (pushed.Wait() && pulled.Wait()) ++fine;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(fine, 0);
  }
}

TEST(Library, CreditsBeyondAShardsLimitAreRefused) {
  for (const auto& [bytes, fine] : {std::pair(std::size_t{128} << 20, true), {(std::size_t{128} << 20) + 1, false}}) {
    FakeWorld world;
    ConnectOptions options;
    options.scheduler = "fake://scheduler";
    options.credit_bytes = bytes;
    const auto client = Client::Connect(options, std::make_unique<FakeTransport>(&world));
    ASSERT_EQ(client.has_value(), fine);
    if (fine) continue;
    EXPECT_EQ(client.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(client.error().message, "credit_bytes = 134217729: expected at most 134217728");
  }
}

TEST(Library, PushBlocksWhileTooManyBytesAreQueued) {
  const std::vector<Key> keys = {1};
  const std::vector<float> gradients = {1, 2, 3};
  FakeWorld world;
  ConnectOptions options;
  options.scheduler = "fake://scheduler";
  options.queued_bytes_max = 2 * 3 * sizeof(float);  // the second fits to the byte, a third does not
  auto client = Client::Connect(options, std::make_unique<FakeTransport>(&world));
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  {
    const std::lock_guard lock(world.mutex);
    world.deaf = true;
  }
  const auto push_and_wait_until_sent = [&](std::uint64_t pushes) {
    client->Push(*users, keys, gradients);
    while (client->counters().pushes < pushes) std::this_thread::yield();
  };
  push_and_wait_until_sent(1);
  push_and_wait_until_sent(2);
  std::atomic<bool> through = false;
  std::thread third([&] {
    client->Push(*users, keys, gradients);
    through = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(through);
  {
    const std::lock_guard lock(world.mutex);
    world.deaf = false;  // the next repeat arrives
  }
  third.join();
  EXPECT_TRUE(client->Leave());
  EXPECT_EQ(world.shards[0].applied.size() + world.shards[1].applied.size(), 3u);
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

TEST(Library, OutOfMemoryForAnAnswerEndsTheClientButNotTheProgram) {
  for (const bool waits : {false, true}) {
    FakeWorld world;
    world.deaf = true;
    auto client = ConnectTo(&world);
    ASSERT_TRUE(client);
    auto users = client->OpenTable("users");
    ASSERT_TRUE(users);
    const auto rows = client->Pull(*users, std::vector<Key>{4});
    {
      const std::lock_guard lock(world.mutex);
      world.no_memory = true;
    }
    const auto outcome = [&] {
      if (waits) return rows.Wait().error();
      while (!rows.Ready()) std::this_thread::yield();
      return rows.Wait().error();
    };
    EXPECT_EQ(ToString(outcome()), "io: out of memory");
    EXPECT_EQ(client->Pull(*users, std::vector<Key>{5}).Wait().error().code, ErrorCode::kIo);
    EXPECT_EQ(client->Leave().error().code, ErrorCode::kIo);
  }
}

TEST(Library, FencingFailsAllWaitingRequests) {
  FakeWorld world;
  for (FakeShard& shard : world.shards) shard.minimum = Clock(0);
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  client->Tick();
  const std::vector<Key> keys = {1, 2, 3};
  const auto rows = client->Pull(*users, keys);  // of clock 1: held back
  EXPECT_FALSE(rows.Ready());
  world.FromScheduler(Shutdown{ErrorCode::kFenced, "too late"});
  EXPECT_EQ(rows.Wait().error().code, ErrorCode::kFenced);
  EXPECT_EQ(client->Barrier().error().code, ErrorCode::kFenced);
  EXPECT_EQ(client->Leave().error().code, ErrorCode::kFenced);
}

TEST(Library, ADeadSchedulerFailsAllWaitingRequests) {
  FakeWorld world;
  Job job;
  job.fleet.heartbeat_seconds = 0.01;
  job.fleet.lease_seconds = 0.1;
  world.job_text = ToToml(job);
  for (FakeShard& shard : world.shards) shard.minimum = Clock(0);
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client);
  auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  client->Tick();
  const std::vector<Key> keys = {1, 2, 3};
  const auto rows = client->Pull(*users, keys);  // of clock 1: held back
  {
    const std::lock_guard lock(world.mutex);
    world.scheduler_dead = true;
  }
  const Status barrier = client->Barrier();
  EXPECT_EQ(barrier.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(barrier.error().message.starts_with("the scheduler at fake://scheduler has been silent for 0."))
      << barrier.error().message;
  EXPECT_EQ(rows.Wait().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client->RequestLeases({.want = 1}).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client->Tick().Wait().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client->Leave().error().code, ErrorCode::kUnavailable);
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

// Shows the threaded library's errors: arguments and values that it refuses, limits, and a client that ends because its
// scheduler is silent or says so, or because there is no memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "tests/unit/worker/client/fake_world.h"
#include "worker/tarn.h"

namespace tarn {
namespace {

TEST(LibraryErrors, ZeroIoThreadsAreRefused) {
  const auto client = Client::Connect({.scheduler = "tcp://127.0.0.1:1", .io_threads = 0});
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().message, "io_threads: expected at least 1, found 0");
}

// Rule A5: a refused push takes no sequence, so the next push is the first one.
TEST(LibraryErrors, RefusesGradientsThatAreNotFinite) {
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

TEST(LibraryErrors, AnInvalidPushWhoseFutureIsDroppedUnreadIsLogged) {
  const auto path = (std::filesystem::temp_directory_path() / ("tarn-dropped-" + std::to_string(::getpid()))).string();
  ASSERT_TRUE(InitLog({.role = "test", .path = path}));
  {
    FakeWorld world;
    auto client = ConnectTo(&world);
    ASSERT_TRUE(client);
    auto users = client->OpenTable("users");
    ASSERT_TRUE(users);
    const std::vector<Key> keys = {1};
    client->Push(*users, keys, std::vector<float>(3, 1.0f));
    const std::vector<float> bad(3, std::numeric_limits<float>::quiet_NaN());
    EXPECT_FALSE(client->Push(*users, keys, bad).Wait());
    EXPECT_EQ(ReadFile(path, 1 << 20).value(), "");
    client->Push(*users, keys, bad);
    EXPECT_TRUE(client->Leave());
  }
  const std::string log = ReadFile(path, 1 << 20).value();
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
  EXPECT_NE(log.find("a push was dropped: table 'users': the gradient of key 1 is nan"), std::string::npos) << log;
  std::filesystem::remove(path);
  ASSERT_TRUE(InitLog({.role = "test", .path = ""}));
}

TEST(LibraryErrors, RefusesInvalidArgumentsBeforeAnythingIsSent) {
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

TEST(LibraryErrors, ConnectTimesOutOrReturnsTheReasonOfARefusal) {
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

TEST(LibraryErrors, ConnectReportsWhatItWaitsFor) {
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

TEST(LibraryErrors, UnreadPullsAreBounded) {
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
  EXPECT_NE(pull({4, 4, 4}).Wait().error().message.find("is for 44 bytes"), std::string::npos)
      << "the key once, its row three times";
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

// The first pull cannot allocate the cache that the job wants. This ends the client while several threads send
// requests.
TEST(LibraryErrors, RequestsDuringTheEndOfTheClientGetItsError) {
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

TEST(LibraryErrors, CreditsBeyondAShardsLimitAreRefused) {
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

TEST(LibraryErrors, PushBlocksWhileTooManyBytesAreQueued) {
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

TEST(LibraryErrors, OutOfMemoryForAnAnswerEndsTheClientButNotTheProgram) {
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

TEST(LibraryErrors, FencingFailsAllWaitingRequests) {
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

TEST(LibraryErrors, ADeadSchedulerFailsAllWaitingRequests) {
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

}  // namespace
}  // namespace tarn

// Shows that a runtime joins, connects to the shards of a view once, sends requests (also those of other threads),
// passes answers to their completions, and fails pending requests when its client ends.
#include "worker/runtime/runtime.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/unit/worker/client/fake_world.h"
#include "worker/runtime/requests.h"

namespace tarn::worker {
namespace {

class Outcome final : public Completion<> {
 public:
  void Done() override { ++done; }
  void Failed(const Error& error) override { failed = error; }
  int done = 0;
  std::optional<Error> failed;
};

auto TickRequest() {
  return MakeStatusRequest([](Client* client, Completion<>* done, TimeUs now, Outbox* out) {
    client->TickTo(client->clock() + 1, {}, done, now, out);
  });
}

class RuntimeTest : public ::testing::Test {
 protected:
  bool TakeTurn() {
    if (!runtime_.Act()) return false;
    runtime_.Exchange(0);
    return true;
  }
  void Join() {
    ASSERT_TRUE(runtime_.Start("fake://scheduler"));
    while (runtime_.client().state() == ClientState::kJoining) ASSERT_TRUE(TakeTurn());
    ASSERT_EQ(runtime_.client().state(), ClientState::kRunning);
  }
  void Tick(Outcome* outcome) {
    Client& client = runtime_.client();
    client.TickTo(client.clock() + 1, {}, outcome, Runtime::Now(), runtime_.outbox());
  }

  FakeWorld world_;
  FakeTransport transport_{&world_};
  Runtime runtime_{{.rank = 0, .nonce = 1}, &transport_};
};

TEST_F(RuntimeTest, AnInvalidAddressIsRefused) {
  const Status started = runtime_.Start("nonsense");
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RuntimeTest, ConnectsToTheShardsOfAView) {
  Join();
  EXPECT_EQ(world_.lanes.size(), 1u) << "the scheduler";
  EXPECT_TRUE(TakeTurn());
  EXPECT_EQ(world_.lanes.size(), 3u) << "and two shards";
  EXPECT_EQ(world_.connects, 3);
  EXPECT_TRUE(TakeTurn());
  EXPECT_EQ(world_.connects, 3) << "once";
}

TEST_F(RuntimeTest, AShardWithoutAnAddressEndsTheRuntime) {
  world_.view.routes.endpoints[1] = "nonsense";
  Join();
  EXPECT_FALSE(TakeTurn());
  EXPECT_EQ(runtime_.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RuntimeTest, ActSendsARequestAndExchangeReceivesItsAnswer) {
  Join();
  Outcome outcome;
  Tick(&outcome);
  EXPECT_FALSE(runtime_.outbox()->empty());
  EXPECT_TRUE(world_.ticks.empty());
  EXPECT_TRUE(runtime_.Act());
  EXPECT_TRUE(runtime_.outbox()->empty());
  EXPECT_EQ(world_.ticks.size(), 1u);
  EXPECT_EQ(outcome.done, 0);
  runtime_.Exchange(0);
  EXPECT_EQ(outcome.done, 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(TakeTurn());
  EXPECT_EQ(outcome.done, 1) << "once";
}

TEST_F(RuntimeTest, AStoppedClientEndsTheRuntimeAndFailsPendingRequests) {
  Join();
  EXPECT_TRUE(TakeTurn());
  world_.deaf = true;
  Outcome outcome;
  Tick(&outcome);
  EXPECT_TRUE(TakeTurn());
  world_.FromScheduler(Shutdown{ErrorCode::kOk, "over"});
  while (TakeTurn()) continue;
  EXPECT_EQ(runtime_.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(runtime_.error().message, "the job is over: over");
  ASSERT_TRUE(outcome.failed);
  EXPECT_EQ(outcome.failed->code, ErrorCode::kCancelled);
}

// kTimeout means that a caller may wait again, which would never end here.
TEST_F(RuntimeTest, AJobWhoseStopTimedOutIsNotATimeoutForRequests) {
  Join();
  world_.FromScheduler(Shutdown{ErrorCode::kTimeout, "stopped without a checkpoint"});
  while (TakeTurn()) continue;
  EXPECT_EQ(runtime_.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(runtime_.error().message, "the job is over: stopped without a checkpoint");
  Outcome outcome;
  Tick(&outcome);
  ASSERT_TRUE(outcome.failed);
  EXPECT_EQ(outcome.failed->code, ErrorCode::kCancelled);
}

TEST_F(RuntimeTest, MessagesAreReleasedIfOneExhaustsMemory) {
  struct Exhausts final : Completion<> {
    void Done() override { throw std::bad_alloc(); }
    void Failed(const Error&) override {}
  };
  Join();
  Exhausts exhausts;
  runtime_.client().TickTo(Clock(1), {}, &exhausts, Runtime::Now(), runtime_.outbox());
  EXPECT_TRUE(runtime_.Act());
  EXPECT_THROW(runtime_.Exchange(0), std::bad_alloc);
  world_.kept = 0;
  runtime_.Exchange(0);
  EXPECT_EQ(world_.kept, 0u);
}

TEST_F(RuntimeTest, RequestsOfOtherThreadsAreStartedInOrder) {
  Join();
  runtime_.StartThread();
  const auto first = TickRequest(), second = TickRequest();
  runtime_.Submit(first);
  runtime_.Submit(second);
  EXPECT_TRUE(second->Wait());
  EXPECT_TRUE(first->Ready()) << "ticks are acknowledged in order";
  EXPECT_TRUE(first->WaitFor(0));
  const auto clock = MakeValueRequest<Clock>(
      [](const Client* client, Completion<Clock>* done, TimeUs, Outbox*) { done->Done(client->clock()); });
  runtime_.Submit(clock);
  EXPECT_TRUE(clock->Wait());
  EXPECT_EQ(clock->value, Clock(2));
}

// Until then the client calls the other tables' sinks, also if the caller has dropped the request.
TEST_F(RuntimeTest, APullOfSeveralTablesEndsWithItsLastTable) {
  for (FakeShard& shard : world_.shards) shard.minimum = Clock(0);
  Join();
  runtime_.StartThread();
  std::weak_ptr<Request> dropped;
  for (const bool keeps : {true, false}) {
    std::vector<PullRequest::Table> tables(2);
    for (const std::uint32_t table : {99u, 1u})  // the first table is unknown
      Planner(4).Make(TableId(table), 3, Positioner(world_.view.tables[0], 1), std::vector<Key>{1, 2},
                      &tables[table == 1].plan.own, &tables[table == 1].order);
    auto request = std::make_shared<PullRequest>(std::move(tables), Clock(1), 0);
    runtime_.Submit(request);
    EXPECT_EQ(request->WaitFor(0.01).error().code, ErrorCode::kTimeout);
    dropped = request;
    if (!keeps) break;
    world_.Release(Clock(1));
    EXPECT_EQ(request->Wait().error().code, ErrorCode::kNotFound);
    const std::lock_guard lock(world_.mutex);
    for (FakeShard& shard : world_.shards) shard.minimum = Clock(0);
  }
  EXPECT_FALSE(dropped.expired());
  world_.Release(Clock(1));
  while (!dropped.expired()) std::this_thread::yield();
}

TEST_F(RuntimeTest, TheEndFailsPendingAndLaterRequests) {
  std::shared_ptr<Request> under_way, posted;
  {
    FakeTransport transport(&world_);
    Runtime runtime({.rank = 0, .nonce = 1}, &transport);
    ASSERT_TRUE(runtime.Start("fake://scheduler"));
    while (runtime.client().state() == ClientState::kJoining) {
      ASSERT_TRUE(runtime.Act());
      runtime.Exchange(0);
    }
    world_.deaf = true;
    runtime.StartThread();
    under_way = TickRequest();
    runtime.Submit(under_way);
    EXPECT_EQ(under_way->WaitFor(0.01).error().code, ErrorCode::kTimeout);
  }
  EXPECT_EQ(under_way->Wait().error().code, ErrorCode::kCancelled);
}

// In a child process: there is no memory for the stack of a thread.
TEST(RuntimeThreadTest, ARuntimeWhoseThreadCannotStartCanBeDestroyed) {
  const auto run = [] {
    FakeWorld world;
    FakeTransport transport(&world);
    auto runtime = std::make_unique<Runtime>(ClientOptions{.rank = 0, .nonce = 1}, &transport);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 50);
    pthread_setattr_default_np(&attributes);
    bool refused = false;
    try {
      runtime->StartThread();
    } catch (const std::system_error&) {
      refused = true;
    }
    runtime.reset();
    std::_Exit(refused ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tarn::worker

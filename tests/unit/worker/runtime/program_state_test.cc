// Shows when a program's state is saved (rule K9): in the first call after a tick, and while the program waits for
// leases; on the thread of that call. First alone, then in the library.
#include "worker/runtime/program_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/worker/client/fake_world.h"
#include "worker/runtime/requests.h"
#include "worker/tarn.h"

namespace tarn {
namespace {

class ProgramStateTest : public testing::Test {
 protected:
  ProgramStateTest() {
    EXPECT_TRUE(runtime_.Start("fake://scheduler"));
    while (runtime_.client().state() == worker::ClientState::kJoining && runtime_.Act()) runtime_.Exchange(0);
    runtime_.StartThread();
  }
  template <typename Starter>
  Status Run(Starter starter) {
    const auto request = worker::MakeStatusRequest(starter);
    runtime_.Submit(request);
    return request->Wait();
  }
  void Tick() {
    EXPECT_TRUE(Run([](worker::Client* client, worker::Completion<>* done, TimeUs now, Outbox* out) {
      client->TickTo(client->clock() + 1, {}, done, now, out);
    }));
    state_.OnTick();
  }

  FakeWorld world_;
  FakeTransport transport_{&world_};
  worker::Runtime runtime_{{.rank = 0, .nonce = 1}, &transport_};
  worker::ProgramState state_{&runtime_, WorkerRank(0), 1024};
  int saved_ = 0;
};

TEST_F(ProgramStateTest, AsksOnceAfterEachTick) {
  Tick();
  state_.SaveAfterTick(Clock(1));
  state_.SaveWhileWaiting(Clock(1));
  EXPECT_EQ(saved_, 0) << "it keeps no state";
  state_.Keep([this]() -> Expected<Buffer> {
    ++saved_;
    return Buffer::Copy("state", 5);
  });
  {
    const std::lock_guard lock(world_.mutex);
    world_.view.version = ViewVersion(2);
    world_.view.checkpoint = {.id = CheckpointId(1), .directory = "d", .blobs = true};
    world_.Answer(kSchedulerPeer, ViewUpdate{world_.view});
  }
  EXPECT_TRUE(Run([](worker::Client* client, worker::Completion<>* done, TimeUs now, Outbox* out) {
    client->Barrier(done, now, out);  // its answer arrives after the view
  }));
  Tick();
  EXPECT_EQ(saved_, 0) << "it may do more after its tick";
  state_.SaveAfterTick(Clock(2));
  EXPECT_EQ(saved_, 1);
  state_.SaveAfterTick(Clock(2));
  state_.SaveWhileWaiting(Clock(2));
  EXPECT_EQ(saved_, 1) << "once for a checkpoint";
}

TEST_F(ProgramStateTest, KeepReturnsWhenTheClientHasRecordedIt) {
  std::atomic<bool> handling = false, kept = false;
  std::thread holder([&] {
    EXPECT_TRUE(Run([&](worker::Client*, worker::Completion<>* done, TimeUs, Outbox*) {
      handling = true;
      for (int i = 0; i < 100 && !kept; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_FALSE(kept) << "its request waits behind this one";
      done->Done();
    }));
  });
  while (!handling) std::this_thread::yield();
  state_.Keep([] { return Buffer(); });
  kept = true;
  holder.join();
}

TEST_F(ProgramStateTest, ARunThatDoesNotResumeHasNoSavedState) {
  const auto saved = state_.Read(WorkerRank(0));
  ASSERT_TRUE(saved);
  EXPECT_TRUE(saved->empty());
}

class ProgramStateOfClient : public testing::Test {
 protected:
  ProgramStateOfClient() : client_(ConnectTo(&world_).value()), users_(client_.OpenTable("users").value()) {
    client_.KeepState([this]() -> Expected<Buffer> {
      EXPECT_EQ(std::this_thread::get_id(), thread_);
      ++saved_;
      if (fails_) return Fail(ErrorCode::kIo, "no room");
      return Buffer::Copy("state", 5);
    });
    EXPECT_TRUE(Pull());
  }
  // Orders a checkpoint without a clock. Returns when the client has the order.
  void Order(std::uint64_t id) {
    View view;
    {
      const std::lock_guard lock(world_.mutex);
      ++world_.view.version.value;
      world_.view.checkpoint = {.id = CheckpointId(id), .directory = "d", .blobs = true};
      view = world_.view;
    }
    world_.FromScheduler(ViewUpdate{view});
    EXPECT_TRUE(client_.Barrier());  // its answer arrives after the view
  }
  Status Pull() {
    const auto rows = client_.Pull(users_, std::vector<Key>{1, 2}).Wait();
    if (!rows) return std::unexpected(rows.error());
    return {};
  }

  const std::thread::id thread_ = std::this_thread::get_id();
  FakeWorld world_;
  Client client_;
  Table users_;
  int saved_ = 0;
  bool fails_ = false;
};

TEST_F(ProgramStateOfClient, IsSavedInTheFirstCallAfterATick) {
  Order(1);
  EXPECT_TRUE(Pull());
  EXPECT_EQ(saved_, 0) << "the program may be in the middle of a clock";
  EXPECT_TRUE(client_.Tick().Wait());
  EXPECT_EQ(saved_, 0) << "it may do more after its tick";
  EXPECT_TRUE(Pull());
  EXPECT_EQ(saved_, 1);
  EXPECT_TRUE(client_.Tick().Wait());
  EXPECT_TRUE(Pull());
  EXPECT_EQ(saved_, 1) << "once for a checkpoint";
  Order(2);
  EXPECT_TRUE(client_.Tick().Wait());
  EXPECT_TRUE(client_.Barrier());
  EXPECT_EQ(saved_, 2);
}

TEST_F(ProgramStateOfClient, IsSavedWhenTheProgramAsks) {
  Order(1);
  client_.SaveState();
  EXPECT_EQ(saved_, 0) << "the program may be in the middle of a clock";
  EXPECT_TRUE(client_.Tick().Wait());
  client_.SaveState();
  EXPECT_EQ(saved_, 1);
  EXPECT_TRUE(Pull());
  EXPECT_EQ(saved_, 1) << "once for a checkpoint";
}

TEST_F(ProgramStateOfClient, IsSavedWhileItWaitsForLeases) {
  Order(1);
  EXPECT_TRUE(client_.RequestLeases({}));
  EXPECT_EQ(saved_, 1);
}

TEST_F(ProgramStateOfClient, AStateThatCannotBeSavedEndsTheClient) {
  fails_ = true;
  Order(1);
  EXPECT_TRUE(client_.Tick().Wait());
  const Status pulled = Pull();
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().message, "the program's state: no room");
}

TEST_F(ProgramStateOfClient, ARunThatDoesNotResumeHasNone) {
  const auto saved = client_.SavedState(0);
  ASSERT_TRUE(saved);
  EXPECT_TRUE(saved->empty());
}

TEST_F(ProgramStateOfClient, KeepStateReturnsAfterTheEndOfTheClient) {
  EXPECT_TRUE(client_.Leave());
  client_.KeepState([] { return Buffer(); });
  EXPECT_FALSE(Pull());
}

TEST(ProgramState, AJobWithBackupWorkersKeepsNone) {
  FakeWorld world;
  Job job;
  job.consistency.backup_workers = 1;
  job.fleet.workers = 2;
  job.train.prefetch = 0;
  world.job_text = ToToml(job);
  auto client = ConnectTo(&world);
  ASSERT_TRUE(client) << client.error().message;
  const auto users = client->OpenTable("users");
  ASSERT_TRUE(users);
  client->KeepState([] { return Buffer(); });
  const auto rows = client->Pull(*users, std::vector<Key>{1}).Wait();
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tarn

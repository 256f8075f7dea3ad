// Shows when the library calls a program to save its state (rule K9): in the first call after a tick, and while the
// program waits for leases; on the thread of that call.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/unit/worker/client/fake_world.h"
#include "worker/tarn.h"

namespace tarn {
namespace {

class ProgramState : public testing::Test {
 protected:
  ProgramState() : client_(ConnectTo(&world_).value()), users_(client_.OpenTable("users").value()) {
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

TEST_F(ProgramState, IsSavedInTheFirstCallAfterATick) {
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

TEST_F(ProgramState, IsSavedWhileItWaitsForLeases) {
  Order(1);
  EXPECT_TRUE(client_.RequestLeases({}));
  EXPECT_EQ(saved_, 1);
}

TEST_F(ProgramState, AStateThatCannotBeSavedEndsTheClient) {
  fails_ = true;
  Order(1);
  EXPECT_TRUE(client_.Tick().Wait());
  const Status pulled = Pull();
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().message, "the program's state: no room");
}

TEST_F(ProgramState, ARunThatDoesNotResumeHasNone) {
  const auto saved = client_.SavedState(0);
  ASSERT_TRUE(saved);
  EXPECT_TRUE(saved->empty());
}

}  // namespace
}  // namespace tarn

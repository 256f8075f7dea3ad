// Shows StateKeeper alone: what it writes and when, its warnings, and when a failing disk ends the run.
#include "scheduler/state/state_keeper.h"

#include <gtest/gtest.h>

#include "core/log.h"
#include "tests/unit/scheduler/memory_store.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kSlowUs = 1000;

class StateKeeperTest : public testing::Test {
 protected:
  // Runs a step with one lease reply. Returns the messages that are sent.
  Outbox Step(std::uint64_t revision) {
    Outbox out;
    out.push_back({Peer(1), {.sender = {}, .body = LeaseReply{}}});
    keeper_.HoldBack(revision, 0, &out);
    return out;
  }
  void Write(TimeUs now) {
    SchedulerState state;
    state.version = ViewVersion(4);
    keeper_.Write(state, now);
  }

  MemoryStore store_;
  Notes notes_;
  StateKeeper keeper_{true, kSlowUs, &store_, &notes_};
};

TEST_F(StateKeeperTest, MessagesWaitUntilTheirStateIsOnDisk) {
  EXPECT_TRUE(Step(1).empty());
  ASSERT_TRUE(keeper_.MayWrite(0));
  Write(0);
  EXPECT_FALSE(keeper_.durable());
  const auto written = store_.TakeWritten();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(store_.state->version, ViewVersion(4));
  Outbox out;
  EXPECT_TRUE(keeper_.OnWritten(written[0].number, &out));
  EXPECT_EQ(out.size(), 1u);
  EXPECT_TRUE(keeper_.durable());
  keeper_.Remove();
  EXPECT_FALSE(store_.state);
  EXPECT_FALSE(keeper_.active());
}

TEST_F(StateKeeperTest, ASlowDiskIsWarnedOfOncePerPeriod) {
  Step(1);
  Write(0);
  keeper_.WarnIfSlow(kSlowUs - 1);
  EXPECT_TRUE(notes_.Take().empty());
  keeper_.WarnIfSlow(kSlowUs);
  keeper_.WarnIfSlow(kSlowUs + kWaitNotePeriodUs - 1);
  EXPECT_EQ(notes_.Take().size(), 1u);
  keeper_.WarnIfSlow(kSlowUs + kWaitNotePeriodUs);
  EXPECT_EQ(notes_.Take().size(), 1u);
}

TEST_F(StateKeeperTest, ThreeFailuresEndTheRun) {
  const Error error{ErrorCode::kIo, "no space"};
  TimeUs now = 0;
  for (int i = 1; i <= StateGate::kTriesMax; ++i) {
    Step(1);
    ASSERT_TRUE(keeper_.MayWrite(now));
    Write(now);
    EXPECT_TRUE(keeper_.OnFailed(static_cast<std::uint64_t>(1), now));
    const auto ends = keeper_.JudgeFailure(error, false);
    EXPECT_EQ(ends.has_value(), i == StateGate::kTriesMax);
    EXPECT_EQ(notes_.Take().size(), ends ? 0u : 1u);
    EXPECT_FALSE(keeper_.JudgeFailure(error, true)) << "it ends anyway";
    notes_.Take();
    now += StateGate::kPauseUs;
  }
  EXPECT_FALSE(keeper_.MayWrite(now));
}

TEST(StateKeeper, ARunWithoutALogHasNoState) {
  MemoryStore store;
  Notes notes;
  EXPECT_FALSE(StateKeeper(false, kSlowUs, &store, &notes).active());
}

}  // namespace
}  // namespace tarn::scheduler

// Shows FleetStop alone: which nodes get Shutdown, how often, and when the stop is over (rules S1, S2).
#include "scheduler/stopping/fleet_stop.h"

#include <gtest/gtest.h>

#include "scheduler/stopping/stop_request.h"
#include "tests/unit/scheduler/membership/nodes_fixture.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kBeatUs = 100;
constexpr Incarnation kA{1}, kB{2};

class FleetStopTest : public testing::Test {
 protected:
  void Begin() { stop_.Begin({ErrorCode::kTimeout, "why"}, "stopped", {{kA, Peer(11)}, {kB, Peer(12)}}, 0); }
  std::size_t Repeat(TimeUs now) {
    letters_.Clear();
    stop_.Repeat(now, letters_.mail);
    return letters_.out.size();
  }
  // Delivers a message of a node or tool. Returns the number of answers.
  std::size_t Answer(Role role, Incarnation incarnation, Body body) {
    letters_.Clear();
    Message message;
    message.sender = {role, 0, incarnation};
    message.body = std::move(body);
    stop_.OnMessage(Peer(11), message, letters_.mail);
    return letters_.out.size();
  }

  FleetStop stop_{kBeatUs};
  Letters letters_;
};

TEST_F(FleetStopTest, EveryNodeGetsShutdownOncePerHeartbeatPeriod) {
  EXPECT_EQ(stop_.PhaseOr("train"), "train");
  EXPECT_EQ(stop_.reason().code, ErrorCode::kOk);
  Begin();
  EXPECT_TRUE(stop_.begun());
  EXPECT_EQ(stop_.PhaseOr("train"), "stopped");
  EXPECT_EQ(Repeat(0), 2u);
  EXPECT_EQ(letters_.Last<Shutdown>()->reason, "why");
  EXPECT_EQ(Repeat(kBeatUs), 0u);  // time 0 counts as 1
  EXPECT_EQ(Repeat(kBeatUs + 1), 2u);
}

TEST_F(FleetStopTest, ItIsOverOnceAllHaveConfirmed) {
  Begin();
  EXPECT_EQ(Answer(Role::kWorker, kA, Shutdown{}), 0u);
  EXPECT_FALSE(stop_.over());
  EXPECT_EQ(Answer(Role::kWorker, kB, Heartbeat{}), 1u);  // it has not received Shutdown yet
  EXPECT_EQ(Answer(Role::kWorker, kB, Shutdown{ErrorCode::kIo, "mine"}), 1u);
  EXPECT_EQ(Answer(Role::kScheduler, kB, Shutdown{}), 0u);  // a tool confirms nothing
  EXPECT_FALSE(stop_.over());
  EXPECT_EQ(Answer(Role::kShard, kB, Shutdown{}), 0u);
  EXPECT_TRUE(stop_.over());
}

TEST_F(FleetStopTest, SilentNodesAreNotWaitedForLong) {
  Begin();
  Repeat(0);
  stop_.RecordContact(kBeatUs);
  Repeat(3 * kBeatUs - 1);
  EXPECT_FALSE(stop_.over());
  EXPECT_EQ(Repeat(3 * kBeatUs), 0u);
  EXPECT_TRUE(stop_.over());
}

TEST_F(FleetStopTest, NodesThatNeverConfirmAreNotWaitedForLong) {
  Begin();
  for (TimeUs now = 0; now < FleetStop::kPeriodsMax * kBeatUs; now += kBeatUs) {
    stop_.RecordContact(now);
    Repeat(now);
    EXPECT_FALSE(stop_.over());
  }
  stop_.RecordContact(FleetStop::kPeriodsMax * kBeatUs);
  Repeat(FleetStop::kPeriodsMax * kBeatUs);
  EXPECT_TRUE(stop_.over());
}

TEST_F(FleetStopTest, AFleetWithoutNodesHasStopped) {
  stop_.Begin({ErrorCode::kOk, "done"}, "done", {}, 0);
  EXPECT_TRUE(stop_.Repeat(0, letters_.mail));
}

TEST(StopRequest, IsOverdueAtItsDeadlineAndCutsOnce) {
  StopRequest request;
  EXPECT_FALSE(request.Overdue(100));
  request.Request({ErrorCode::kOk, "stopped"}, 50);
  EXPECT_TRUE(request.requested());
  EXPECT_FALSE(request.Overdue(49));
  EXPECT_TRUE(request.Overdue(50));
  request.Observe(7, 80);
  EXPECT_FALSE(request.Overdue(79)) << "the checkpoint goes on";
  request.Observe(7, 90);
  EXPECT_TRUE(request.Overdue(80));
  EXPECT_TRUE(request.BeginCut());
  EXPECT_FALSE(request.BeginCut());
  EXPECT_STREQ(request.phase(), "stopped");
  request.ChangeReason({ErrorCode::kUnavailable, "no worker is left"});
  EXPECT_STREQ(request.phase(), "failed");
  EXPECT_FALSE(request.state_saved());
  request.MarkStateSaved();
  EXPECT_TRUE(request.state_saved());
}

}  // namespace
}  // namespace tarn::scheduler

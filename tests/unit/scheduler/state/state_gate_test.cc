// Shows what the gate in front of the scheduler's messages keeps back, for how long, and that it is bounded.
#include "scheduler/state/state_gate.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

constexpr Peer kNode{kFirstAcceptedPeer};

class StateGateTest : public testing::Test {
 protected:
  // A step that leaves a state of this revision, and sends these. What leaves.
  Outbox Step(std::uint64_t revision, std::vector<Body> bodies) {
    Outbox out;
    out.push_back({kNode, {}});  // of a step before: not the gate's
    for (Body& body : bodies) out.push_back({kNode, {.sender = {}, .body = std::move(body)}});
    gate_.HoldBack(revision, 1, &out);
    out.erase(out.begin());
    return out;
  }
  static LeaseReply Reply(std::uint64_t number) { return {.number = number}; }
  static std::uint64_t NumberOf(const Outgoing& outgoing) { return std::get<LeaseReply>(outgoing.message.body).number; }
  std::uint64_t Begin(std::uint64_t view = 1) { return gate_.Begin(ViewVersion(view), now_); }

  StateGate gate_;
  TimeUs now_ = 1;
};

TEST_F(StateGateTest, NothingLeavesBeforeTheFirstState) {
  EXPECT_TRUE(Step(5, {Reply(1)}).empty());
  EXPECT_TRUE(gate_.MayBegin(now_));
  const std::uint64_t number = Begin();
  EXPECT_FALSE(gate_.MayBegin(now_));
  Outbox out;
  EXPECT_FALSE(gate_.OnWritten(number + 1, &out));
  EXPECT_TRUE(gate_.OnWritten(number, &out));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(Step(5, {Reply(2)}).size(), 1u) << "the state has not changed since";
  EXPECT_FALSE(gate_.MayBegin(now_));
}

// What came while a write was under way, of a state that it does not hold, waits for the next.
TEST_F(StateGateTest, EachWaitsForTheWriteThatHoldsItsState) {
  Step(1, {Reply(1)});
  const std::uint64_t first = Begin();
  Step(1, {Barrier{.number = 9}});  // of the same state
  Step(2, {Reply(2)});
  EXPECT_EQ(gate_.held(), 3u);
  Outbox out;
  gate_.OnWritten(first, &out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(gate_.MayBegin(now_));
  const std::uint64_t second = Begin();
  out.clear();
  gate_.OnWritten(second, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(NumberOf(out[0]), 2u);
}

TEST_F(StateGateTest, AFailedWriteReleasesNothingAndAnotherFollowsAfterAPause) {
  Step(1, {Reply(1), Barrier{.number = 9}});
  const std::uint64_t first = Begin();
  Step(2, {Reply(2)});
  EXPECT_TRUE(gate_.OnFailed(first, now_));
  EXPECT_EQ(gate_.held(), 2u) << "of the replies the newest";
  EXPECT_FALSE(gate_.MayBegin(now_ + StateGate::kPauseUs - 1));
  EXPECT_TRUE(gate_.MayBegin(now_ + StateGate::kPauseUs));
  Outbox out;
  EXPECT_FALSE(gate_.OnWritten(first, &out)) << "it has ended";
  gate_.OnWritten(Begin(), &out);
  EXPECT_EQ(out.size(), 2u);
  EXPECT_EQ(gate_.failures(), 0);
}

TEST_F(StateGateTest, ThreeInARowAreEnough) {
  Step(1, {});
  for (int i = 0; i < StateGate::kTriesMax; ++i) {
    ASSERT_TRUE(gate_.MayBegin(now_));
    gate_.OnFailed(Begin(), now_);
    now_ += StateGate::kPauseUs;
  }
  EXPECT_FALSE(gate_.MayBegin(now_));
}

// A stalled disk has nodes repeat what they ask for: the newest answer is enough.
TEST_F(StateGateTest, HoldsTheNewestOfAKindForANode) {
  Step(1, {});
  Begin();
  for (std::uint64_t i = 0; i < 1000; ++i) Step(2 + i, {Reply(i), ViewUpdate{}, Welcome{}});
  EXPECT_EQ(gate_.held(), 3u);
  CreateTable one, other;
  one.spec.id = TableId(1);
  other.spec.id = TableId(2);
  for (int i = 0; i < 10; ++i) Step(5000, {one, other});
  EXPECT_EQ(gate_.held(), 5u) << "of two tables";
}

TEST_F(StateGateTest, HoldsNoMoreThanTheLimit) {
  Outbox out;
  for (std::uint64_t i = 0; i <= limits::kHeldMessagesMax; ++i)
    out.push_back({Peer(kFirstAcceptedPeer + i), {.sender = {}, .body = Shutdown{}}});
  gate_.HoldBack(1, 0, &out);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(gate_.held(), limits::kHeldMessagesMax);
  out.push_back({kNode, {.sender = {}, .body = Shutdown{}}});
  gate_.HoldBack(2, 0, &out);
  EXPECT_EQ(gate_.held(), limits::kHeldMessagesMax) << "one that is there already is replaced";
}

TEST_F(StateGateTest, HeartbeatsAreAnsweredAndNameNoViewThatIsNotOnDisk) {
  const auto view_in = [](const Outbox& out) { return std::get<HeartbeatAck>(out.at(0).message.body).view; };
  EXPECT_EQ(view_in(Step(1, {HeartbeatAck{ViewVersion(4)}})), ViewVersion(0));
  Outbox out;
  gate_.OnWritten(Begin(4), &out);
  EXPECT_EQ(view_in(Step(1, {HeartbeatAck{ViewVersion(4)}})), ViewVersion(4));
  EXPECT_EQ(view_in(Step(2, {HeartbeatAck{ViewVersion(5)}})), ViewVersion(4));
}

TEST_F(StateGateTest, OfACheckpointToolsHearOnceTheStateKnowsItAndOfAllElseAtOnce) {
  Step(1, {});
  EXPECT_EQ(Step(1, {CheckpointRequest{3, ErrorCode::kOk, {}, {}}}).size(), 1u) << "that it is being cut";
  EXPECT_EQ(Step(1, {CheckpointRequest{3, ErrorCode::kIo, "full", {}}}).size(), 1u);
  EXPECT_TRUE(Step(1, {CheckpointRequest{3, ErrorCode::kOk, {}, "run/checkpoints/ckpt-1"}}).empty());
}

TEST_F(StateGateTest, TheEndOfARunWaitsForNoDisk) {
  Step(1, {Reply(1), CheckpointRequest{3, ErrorCode::kOk, {}, "run/checkpoints/ckpt-1"}});
  EXPECT_TRUE(Step(1, {Shutdown{}}).empty()) << "this node may hear of a view that is not on disk";
  gate_.End();
  EXPECT_EQ(gate_.held(), 1u);
  EXPECT_EQ(Step(2, {ViewUpdate{}, Shutdown{}}).size(), 1u);
  EXPECT_EQ(gate_.held(), 1u);
  Outbox out;
  gate_.OnWritten(Begin(), &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<CheckpointRequest>(out[0].message.body));
}

}  // namespace
}  // namespace tarn::scheduler

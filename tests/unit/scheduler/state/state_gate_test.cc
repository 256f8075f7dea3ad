// Shows which messages of the scheduler the gate holds, for how long, and that their number is bounded.
#include "scheduler/state/state_gate.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

constexpr Peer kNode{kFirstAcceptedPeer};

class StateGateTest : public testing::Test {
 protected:
  // Runs a step that ends with this revision of the state and sends these messages. Returns those that the gate
  // releases.
  Outbox Step(std::uint64_t revision, std::vector<Body> bodies) {
    Outbox out;
    out.push_back({kNode, {}});  // of an earlier step: the gate does not touch it
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

TEST_F(StateGateTest, NothingIsSentBeforeTheFirstState) {
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

// A message of a state that the current write does not contain waits for the next write.
TEST_F(StateGateTest, EachMessageWaitsForTheWriteOfItsState) {
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

TEST_F(StateGateTest, AFailedWriteReleasesNothingAndIsRetriedAfterAPause) {
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

TEST_F(StateGateTest, ThreeFailedWritesInARowAreFinal) {
  Step(1, {});
  for (int i = 0; i < StateGate::kTriesMax; ++i) {
    ASSERT_TRUE(gate_.MayBegin(now_));
    gate_.OnFailed(Begin(), now_);
    now_ += StateGate::kPauseUs;
  }
  EXPECT_FALSE(gate_.MayBegin(now_));
}

// While the disk stalls, nodes repeat their requests: the newest answer is enough.
TEST_F(StateGateTest, HoldsOnlyTheNewestMessageOfAKindForANode) {
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

TEST_F(StateGateTest, HeartbeatsAreAnsweredWithTheNewestViewOnDisk) {
  const auto view_in = [](const Outbox& out) { return std::get<HeartbeatAck>(out.at(0).message.body).view; };
  EXPECT_EQ(view_in(Step(1, {HeartbeatAck{ViewVersion(4)}})), ViewVersion(0));
  Outbox out;
  gate_.OnWritten(Begin(4), &out);
  EXPECT_EQ(view_in(Step(1, {HeartbeatAck{ViewVersion(4)}})), ViewVersion(4));
  EXPECT_EQ(view_in(Step(2, {HeartbeatAck{ViewVersion(5)}})), ViewVersion(4));
}

TEST_F(StateGateTest, ToolsGetACheckpointOnceTheStateHasItAndOtherAnswersAtOnce) {
  Step(1, {});
  EXPECT_EQ(Step(1, {CheckpointRequest{3, ErrorCode::kOk, {}, {}}}).size(), 1u) << "that it is being cut";
  EXPECT_EQ(Step(1, {CheckpointRequest{3, ErrorCode::kIo, "full", {}}}).size(), 1u);
  EXPECT_TRUE(Step(1, {CheckpointRequest{3, ErrorCode::kOk, {}, "run/checkpoints/ckpt-1"}}).empty());
}

TEST_F(StateGateTest, TheEndOfARunDoesNotWaitForTheDisk) {
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

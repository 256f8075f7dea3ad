// Shows that a gate passes messages in the recorded order, in whatever order they arrive, and reports differences.
#include "sim/trial/effect_gate.h"

#include <gtest/gtest.h>

#include <string>

namespace tarn::sim {
namespace {

using server::EffectOf;

constexpr Peer kPeer{kFirstAcceptedPeer + 1};

Message From(std::uint32_t rank, Body body) {
  Message message;
  message.sender = {Role::kWorker, rank, Incarnation(10 + rank)};
  message.body = std::move(body);
  return message;
}

Tick TickTo(std::uint64_t clock) {
  Tick tick;
  tick.clock = Clock(clock);
  return tick;
}

Pull PullAt(std::uint64_t clock, std::uint64_t request) {
  Pull pull;
  pull.request = RequestId(request);
  pull.clock = Clock(clock);
  pull.tables.emplace_back().table = TableId(1);
  pull.tables[0].keys.sections = {{.partition = PartitionId(2), .count = 3}};
  return pull;
}

Push PushOf(std::uint64_t sequence) {
  Push push;
  push.request = RequestId(sequence);
  push.tables.emplace_back().table = TableId(1);
  push.tables[0].keys.sections = {{.partition = PartitionId(2), .count = 3, .sequence = Sequence(sequence)}};
  return push;
}

class EffectGateTest : public ::testing::Test {
 protected:
  EffectGateTest()
      : order_{EffectOf(WorkerRank(1), TickTo(1)), EffectOf(WorkerRank(0), PushOf(1), 0),
               EffectOf(WorkerRank(1), PullAt(1, 0))},
        gate_(&order_) {}

  // Takes the next message from the gate, as if the shard handled it. Returns its line, or an empty string if none
  // passes.
  std::string Next() {
    const auto next = gate_.TakeNext();
    if (!next) return "";
    const WorkerRank worker(next->message.sender.rank);
    if (const auto* pull = std::get_if<Pull>(&next->message.body)) gate_.OnPullServed(worker, {}, *pull, {});
    if (const auto* push = std::get_if<Push>(&next->message.body)) gate_.OnPushTaken(worker, *push, 0);
    if (const auto* tick = std::get_if<Tick>(&next->message.body)) gate_.OnTick(worker, *tick);
    return ToLine(next->effect);
  }

  std::vector<server::Effect> order_;
  EffectGate gate_;
};

TEST_F(EffectGateTest, PassesMessagesInTheRecordedOrder) {
  gate_.Hold(kPeer, From(1, PullAt(1, 7)));
  gate_.Hold(kPeer, From(0, PushOf(1)));
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(gate_.Waiting(), "0 of 3 effects were repeated; next is 'tick 1 0 1 0'; here is '" + ToLine(order_[2]) +
                                 "'; here is 'push 0 1 1 2'");
  gate_.Hold(kPeer, From(1, TickTo(1)));
  for (const server::Effect& effect : order_) EXPECT_EQ(Next(), ToLine(effect));
  EXPECT_TRUE(gate_.complete());
  EXPECT_EQ(gate_.difference(), "");
  gate_.Hold(kPeer, From(0, PushOf(2)));
  EXPECT_EQ(Next(), "");
}

TEST_F(EffectGateTest, ARepeatedMessageReplacesTheFirst) {
  for (int i = 0; i < 2; ++i) gate_.Hold(kPeer, From(1, TickTo(1)));
  EXPECT_NE(Next(), "");
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(gate_.Waiting(), "1 of 3 effects were repeated; next is 'push 0 1 1 2'");
}

TEST_F(EffectGateTest, ALaterTickContainsAnEarlierOne) {
  order_ = {EffectOf(WorkerRank(1), TickTo(2)), EffectOf(WorkerRank(1), TickTo(5))};
  Tick tick = TickTo(5);
  tick.position = {LeaseId(3), 40};
  tick.earlier = {{Clock(1), {LeaseId(1), 10}}, {Clock(2), {LeaseId(2), 20}}, {Clock(3), {LeaseId(2), 30}}};
  gate_.Hold(kPeer, From(1, TickTo(1)));
  gate_.Hold(kPeer, From(0, TickTo(7)));
  gate_.Hold(kPeer, From(1, tick));
  const auto first = gate_.TakeNext();
  ASSERT_TRUE(first);
  const Tick& earlier = std::get<Tick>(first->message.body);
  EXPECT_EQ(earlier.clock, Clock(2));
  EXPECT_EQ(earlier.position, (DataPosition{LeaseId(2), 20}));
  EXPECT_EQ(earlier.earlier.size(), 1u);
  gate_.OnTick(WorkerRank(1), earlier);
  EXPECT_EQ(Next(), "tick 1 0 5 0");
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(gate_.difference(), "");
}

TEST_F(EffectGateTest, EqualPullsAreEachPassedOnce) {
  order_ = {EffectOf(WorkerRank(1), PullAt(1, 0)), EffectOf(WorkerRank(1), PullAt(1, 0))};
  gate_.Hold(kPeer, From(1, PullAt(1, 7)));
  gate_.Hold(kPeer, From(1, PullAt(1, 8)));
  EXPECT_NE(Next(), "");
  EXPECT_NE(Next(), "");
  EXPECT_TRUE(gate_.complete());
}

TEST_F(EffectGateTest, ARefusedMessageIsExpectedAgain) {
  gate_.Hold(kPeer, From(1, TickTo(1)));
  ASSERT_TRUE(gate_.TakeNext());  // the shard refuses it
  EXPECT_FALSE(gate_.TakeNext());
  gate_.Hold(kPeer, From(1, TickTo(1)));
  EXPECT_EQ(Next(), ToLine(order_[0]));
}

TEST_F(EffectGateTest, APushMayBeginWithItsSecondTable) {
  Push push = PushOf(1);
  PushPart second = push.tables[0];
  second.table = TableId(4);
  push.tables[0].keys.sections.clear();
  push.tables.push_back(second);
  order_ = {EffectOf(WorkerRank(0), push, 0)};
  gate_.Hold(kPeer, From(0, push));
  EXPECT_EQ(Next(), "push 0 4 1 2");
  EXPECT_EQ(gate_.difference(), "");
}

TEST_F(EffectGateTest, ReportsDifferences) {
  gate_.OnTick(WorkerRank(0), TickTo(1));
  EXPECT_EQ(gate_.difference(), "effect 1 is 'tick 0 0 1 0', expected 'tick 1 0 1 0'");
  gate_.OnTick(WorkerRank(0), TickTo(2));
  EXPECT_EQ(gate_.difference(), "effect 1 is 'tick 0 0 1 0', expected 'tick 1 0 1 0'") << "the first one is told";
  order_.clear();
  EffectGate none(&order_);
  none.OnTick(WorkerRank(0), TickTo(1));
  EXPECT_EQ(none.difference(), "effect 1 is 'tick 0 0 1 0', expected none");
}

TEST_F(EffectGateTest, ConcernsOnlyMessagesWithEffects) {
  EXPECT_TRUE(EffectGate::Concerns(From(0, PushOf(1))));
  EXPECT_FALSE(EffectGate::Concerns(From(0, Prefetch{})));
  EXPECT_FALSE(EffectGate::Concerns(From(0, ViewUpdate{})));
}

}  // namespace
}  // namespace tarn::sim

// Shows answers that wait until the log is durable: their number is bounded (tested at the limit and one past it), and
// merged answers lose no information.
#include "server/shard/held_answers.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn::server {
namespace {

Outgoing Of(Peer to, Body body) {
  Outgoing outgoing{to, {}};
  outgoing.message.body = std::move(body);
  return outgoing;
}

Outgoing AckOf(std::uint64_t request, std::uint32_t partition, std::uint64_t sequence, ErrorCode code = ErrorCode::kOk,
               Peer to = Peer(1)) {
  return Of(to, PushAck{RequestId(request), {{PartitionId(partition), Sequence(sequence), code, Sequence(9)}}});
}

std::vector<Outgoing> Take(HeldAnswers* held, std::uint64_t synced) {
  std::vector<Outgoing> taken;
  held->TakeDurable(
      LogSequence(synced), [&](Outgoing one) { taken.push_back(std::move(one)); },
      [&](Peer to, Body body) { taken.push_back(Of(to, std::move(body))); });
  return taken;
}

const PushAck& Ack(const Outgoing& outgoing) { return std::get<PushAck>(outgoing.message.body); }

TEST(HeldAnswersTest, FirstAnswersWaitOneByOneUpToTheLimit) {
  HeldAnswers held(3);
  for (std::uint64_t n = 1; n <= 3; ++n) held.AddAnswer(LogSequence(n), AckOf(n, 0, n), Incarnation(1), true);
  EXPECT_EQ(held.size(), 3u);
  for (std::uint64_t n = 4; n <= 100; ++n) held.AddAnswer(LogSequence(n), AckOf(n, 0, n), Incarnation(1), true);
  EXPECT_EQ(held.size(), 4u) << "one past the limit, and all behind it";
  EXPECT_EQ(Take(&held, 2).size(), 2u);
  const auto rest = Take(&held, 99);
  ASSERT_EQ(rest.size(), 1u) << "the newest is not durable";
  EXPECT_EQ(Ack(rest[0]).sections[0].sequence, Sequence(3));
  const auto last = Take(&held, 100);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(Ack(last[0]).sections[0].sequence, Sequence(100));
  EXPECT_EQ(held.size(), 0u);
}

TEST(HeldAnswersTest, RepetitionsAreMergedByWorkerAndPartition) {
  HeldAnswers held;
  for (std::uint64_t n = 1; n <= 1000; ++n)
    for (std::uint64_t worker = 1; worker <= 2; ++worker)
      for (std::uint32_t partition = 0; partition < 3; ++partition)
        held.AddAnswer(LogSequence(5), AckOf(n, partition, 1 + n % 7), Incarnation(worker), false);
  EXPECT_EQ(held.size(), 6u);
  EXPECT_TRUE(Take(&held, 4).empty());
  const auto taken = Take(&held, 5);
  ASSERT_EQ(taken.size(), 6u);
  for (const Outgoing& one : taken) EXPECT_EQ(Ack(one).sections[0].sequence, Sequence(7));
}

// The previous connection may be closed, and a client ignores answers to an older attempt.
TEST(HeldAnswersTest, TheNewestConnectionAndAttemptAreAnswered) {
  HeldAnswers held;
  held.AddAnswer(LogSequence(5), AckOf(1, 0, 4), Incarnation(1), false);
  held.AddAnswer(LogSequence(8), AckOf(2, 0, 3, ErrorCode::kOk, Peer(2)), Incarnation(1), false);
  const auto taken = Take(&held, 5);
  ASSERT_EQ(taken.size(), 1u) << "what it says was durable with record 5";
  EXPECT_EQ(taken[0].to, Peer(2));
  EXPECT_EQ(Ack(taken[0]).request, RequestId(2));
  EXPECT_EQ(Ack(taken[0]).sections[0].sequence, Sequence(4));
}

TEST(HeldAnswersTest, ARefusalDoesNotReplaceAnAcknowledgement) {
  HeldAnswers held;
  held.AddAnswer(LogSequence(5), AckOf(1, 0, 4), Incarnation(1), false);
  held.AddAnswer(LogSequence(6), AckOf(2, 0, 9, ErrorCode::kOutOfOrder), Incarnation(1), false);
  held.AddAnswer(LogSequence(6), AckOf(3, 1, 9, ErrorCode::kOutOfOrder), Incarnation(1), false);
  held.AddAnswer(LogSequence(7), AckOf(4, 1, 2), Incarnation(1), false);
  const auto taken = Take(&held, 7);
  ASSERT_EQ(taken.size(), 2u);
  for (const Outgoing& one : taken) EXPECT_EQ(Ack(one).sections[0].code, ErrorCode::kOk);
}

TEST(HeldAnswersTest, OfHeartbeatsTheOldestAndTheNewestWait) {
  HeldAnswers held;
  const auto beat = [](std::uint64_t clock) {
    Heartbeat heartbeat;
    heartbeat.clock = Clock(clock);
    return Of(kSchedulerPeer, std::move(heartbeat));
  };
  for (std::uint64_t n = 1; n <= 100; ++n) held.Add(LogSequence(n), beat(n));
  held.Add(LogSequence(100), beat(101));
  EXPECT_EQ(held.size(), 2u);
  auto taken = Take(&held, 1);
  ASSERT_EQ(taken.size(), 1u) << "a disk that is slow, and answers, must not hold up all of them";
  EXPECT_EQ(std::get<Heartbeat>(taken[0].message.body).clock, Clock(1));
  taken = Take(&held, 100);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(std::get<Heartbeat>(taken[0].message.body).clock, Clock(101));
}

TEST(HeldAnswersTest, RepeatedTicksWaitAsOne) {
  HeldAnswers held;
  for (std::uint64_t n = 1; n <= 100; ++n)
    held.AddAnswer(LogSequence(2), Of(Peer(n), TickAck{Clock(n % 10)}), Incarnation(1), false);
  const auto taken = Take(&held, 2);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].to, Peer(100));
  EXPECT_EQ(std::get<TickAck>(taken[0].message.body).clock, Clock(9));
}

TEST(HeldAnswersTest, ARepeatedTickWaitsNoLongerThanTheFirst) {
  HeldAnswers held;
  held.AddAnswer(LogSequence(2), Of(Peer(1), TickAck{Clock(5)}), Incarnation(1), false);
  held.AddAnswer(LogSequence(9), Of(Peer(3), TickAck{Clock(5)}), Incarnation(1), false);
  const auto taken = Take(&held, 2);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].to, Peer(3));
}

}  // namespace
}  // namespace tarn::server

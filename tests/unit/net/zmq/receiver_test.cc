// Shows that messages are received in turn, within the budget, from accepted peers and from peers that we connected to;
// and that handshakes of shared memory are passed to it.
#include "net/zmq/receiver.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/frame.h"
#include "net/shm_handshake.h"
#include "tests/unit/net/zmq/messages.h"
#include "tests/unit/net/zmq/sockets_fixture.h"

namespace tarn::net {
namespace {

const Peer kShard = ShardPeer(ShardId(0));

class ReceiverTest : public SocketsTest {
 protected:
  std::vector<std::pair<Peer, ShmHandshake>> sent_;
  std::size_t answers_ = 0;
  ShmPeers shm_{{}, [this](Peer to, const ShmHandshake& word) {
                  sent_.emplace_back(to, word);
                  return true;
                }};
  Intake intake_{[this](Peer, Frames) { ++answers_; }};
  Receiver receiver_{&router_, &links_, &shm_, &intake_};
  std::vector<Received> got_;
};

TEST_F(ReceiverTest, ReceivesFromPeersInTurnWithinTheBudget) {
  PolledSocket first = NewSocket(), second = NewSocket();
  for (std::uint64_t n = 0; n < kHighWaterMark; ++n) {
    ASSERT_EQ(first.Send({}, *Encode(NumberedTick(n))), SendResult::kSent);
    ASSERT_EQ(second.Send({}, *Encode(NumberedTick(100 + n))), SendResult::kSent);
  }
  receiver_.Drain(3, &got_);
  EXPECT_EQ(got_.size(), 3u);
  EXPECT_TRUE(receiver_.MayHold());
  receiver_.Drain(100, &got_);
  EXPECT_EQ(got_.size(), 2u * kHighWaterMark);
  EXPECT_FALSE(receiver_.MayHold());
  std::map<Peer, std::vector<std::uint64_t>> ticks;
  for (const Received& r : got_) ticks[r.from].push_back(TickOf(r));
  ASSERT_EQ(ticks.size(), 2u);
  for (const auto& [peer, numbers] : ticks)
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], numbers[0] + i);
}

TEST_F(ReceiverTest, MessagesOfALinkHaveItsPeersId) {
  Connect(kShard);
  ASSERT_EQ(links_.Find(kShard)->Send({}, *Encode(NumberedTick(1))), SendResult::kSent);
  receiver_.Drain(10, &got_);
  ASSERT_EQ(got_.size(), 1u);
  ASSERT_EQ(router_.Send(got_[0].from, *Encode(NumberedTick(2))), SendResult::kSent);
  links_.Find(kShard)->may_hold = true;  // as if a poll had reported it
  receiver_.Drain(10, &got_);
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_EQ(got_[1].from, kShard);
  EXPECT_EQ(TickOf(got_[1]), 2u);
}

// Refused messages count in the budget, so that a stranger cannot keep the loop busy.
TEST_F(ReceiverTest, GarbageUsesUpTheBudget) {
  PolledSocket stranger = NewSocket();
  for (int i = 0; i < kHighWaterMark; ++i) ASSERT_EQ(stranger.Send({}, FrameOf("garbage")), SendResult::kSent);
  receiver_.Drain(2, &got_);
  EXPECT_EQ(answers_, 2u);
  EXPECT_TRUE(receiver_.MayHold());
  receiver_.Drain(100, &got_);
  EXPECT_EQ(answers_, std::size_t{kHighWaterMark});
  EXPECT_TRUE(got_.empty());
}

TEST_F(ReceiverTest, HandshakesGoToSharedMemory) {
  PolledSocket lane = NewSocket();
  const ShmHandshake ask{.kind = ShmHandshake::Kind::kRequest, .socket = "of another host", .ticket = {}};
  ASSERT_EQ(lane.Send({}, Frames{EncodeShmHandshake(ask)}), SendResult::kSent);
  receiver_.Drain(10, &got_);
  EXPECT_TRUE(got_.empty());
  EXPECT_EQ(answers_, 0u);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(IsAccepted(sent_[0].first));
  EXPECT_EQ(sent_[0].second.kind, ShmHandshake::Kind::kRefuse);
}

TEST_F(ReceiverTest, AMessageOfTooManyFramesIsRefusedAsTooLarge) {
  PolledSocket lane = NewSocket();
  ASSERT_EQ(lane.Send({}, Frames(100, Buffer::Copy("x", 1))), SendResult::kSent);
  ASSERT_EQ(lane.Send({}, *Encode(NumberedTick(1))), SendResult::kSent);
  receiver_.Drain(10, &got_);
  EXPECT_EQ(got_.size(), 1u);
  TransportCounters counters;
  intake_.AddTo(&counters);
  EXPECT_EQ(counters.refused_too_large, 1u);
}

}  // namespace
}  // namespace tarn::net

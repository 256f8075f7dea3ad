// Shows that messages which a socket does not accept are kept in order, up to the bound, and sent by Flush; and what is
// counted.
#include "net/zmq/socket_sender.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "net/frame.h"
#include "tests/unit/net/zmq/messages.h"
#include "tests/unit/net/zmq/sockets_fixture.h"

namespace tarn::net {
namespace {

const Peer kShard = ShardPeer(ShardId(0));
using SocketSenderTest = SocketsTest;

TEST_F(SocketSenderTest, KeepsTheOrderOfWaitingMessages) {
  Connect(kShard);
  SocketSender sender(&router_, &links_, 1 << 20);
  std::vector<std::string> sent;
  std::size_t bytes = 0;
  for (int i = 0; i < 10 * kHighWaterMark; ++i) {
    sent.push_back("message " + std::to_string(i));
    bytes += sent.back().size();
    const FrameView view{reinterpret_cast<const std::byte*>(sent.back().data()), sent.back().size()};
    ASSERT_TRUE(i % 2 == 0 ? sender.SendOrKeep(kShard, FrameOf(sent.back())) : sender.SendOrKeep(kShard, view));
  }
  EXPECT_TRUE(sender.backlog().Has(kShard));
  EXPECT_FALSE(sender.SendNow(kShard, FrameOf("must not overtake")));
  TransportCounters early;
  sender.AddTo(&early);
  EXPECT_LT(early.sent_messages, sent.size());

  std::vector<std::string> got;
  for (int i = 0; i < 1'000 && got.size() < sent.size(); ++i) {
    for (const auto& message : TakeFromRouter()) got.push_back(message.at(0));
    sender.Flush();
    // A send checks once a millisecond whether there is room again.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(sender.backlog().empty());
  TransportCounters counters;
  sender.AddTo(&counters);
  EXPECT_EQ(counters.sent_messages, sent.size());
  EXPECT_EQ(counters.sent_bytes, bytes);
  EXPECT_TRUE(sender.SendNow(kShard, FrameOf("now")));
}

TEST_F(SocketSenderTest, DropsBeyondTheBound) {
  Connect(kShard);
  SocketSender sender(&router_, &links_, 30);
  for (int i = 0; i < 2 * kHighWaterMark; ++i) ASSERT_TRUE(sender.SendOrKeep(kShard, FrameOf("0123456789")));
  ASSERT_FALSE(sender.backlog().Has(kShard));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(sender.SendOrKeep(kShard, FrameOf("0123456789")));
  EXPECT_EQ(sender.backlog().bytes(), 30u);
  EXPECT_FALSE(sender.SendOrKeep(kShard, FrameOf("0123456789")));
  EXPECT_EQ(sender.backlog().bytes(), 30u);
  EXPECT_EQ(sender.Drop(kShard), 3u);
  EXPECT_TRUE(sender.backlog().empty());
}

TEST_F(SocketSenderTest, MessagesToAnUnknownPeerAreCounted) {
  SocketSender sender(&router_, &links_, 1 << 20);
  EXPECT_TRUE(sender.SendOrKeep(kShard, FrameOf("x")));
  EXPECT_TRUE(sender.SendOrKeep(Peer(kFirstAcceptedPeer), FrameOf("x")));
  EXPECT_TRUE(sender.backlog().empty());
  TransportCounters counters;
  sender.AddTo(&counters);
  EXPECT_EQ(counters.dropped_unreachable, 2u);
  EXPECT_EQ(counters.sent_messages, 0u);
}

TEST_F(SocketSenderTest, AnswersAcceptedPeers) {
  PolledSocket lane = NewSocket();
  ASSERT_EQ(lane.Send({}, FrameOf("ask")), SendResult::kSent);
  ASSERT_EQ(TakeFromRouter().size(), 1u);
  SocketSender sender(&router_, &links_, 1 << 20);
  EXPECT_TRUE(sender.SendNow(last_sender_, FrameOf("answer")));
  Parts parts;
  ASSERT_TRUE(lane.Receive(&parts));
  EXPECT_EQ(TextOf(parts[0]), "answer");
}

}  // namespace
}  // namespace tarn::net

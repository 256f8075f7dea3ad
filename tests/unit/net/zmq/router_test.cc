// Shows that a Router distinguishes and answers its peers, forgets closed connections, and counts failed ones.
#include "net/zmq/router.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "core/descriptor.h"
#include "tests/unit/net/zmq/sockets_fixture.h"

namespace tarn::net {
namespace {

TEST(RouterAlone, HasNoPeersBeforeItIsBound) {
  Router router({.accepted_peers_max = 1});
  EXPECT_EQ(router.socket(), nullptr);
  EXPECT_FALSE(router.MayHold());
  EXPECT_EQ(router.Send(Peer(kFirstAcceptedPeer), FrameOf("x")), SendResult::kUnreachable);
  EXPECT_EQ(router.CloseOversizedSenders(), 0u);
  router.CountFailures(INT64_MAX);
  EXPECT_EQ(router.failures(), 0u);
}

using RouterTest = SocketsTest;

TEST_F(RouterTest, AnswersTheSender) {
  PolledSocket first = NewSocket(), second = NewSocket();
  ASSERT_EQ(first.Send({}, FrameOf("a")), SendResult::kSent);
  ASSERT_EQ(TakeFromRouter().size(), 1u);
  const Peer a = last_sender_;
  ASSERT_EQ(second.Send({}, FrameOf("b")), SendResult::kSent);
  ASSERT_EQ(TakeFromRouter().size(), 1u);
  const Peer b = last_sender_;
  ASSERT_EQ(first.Send({}, FrameOf("a")), SendResult::kSent);
  ASSERT_EQ(TakeFromRouter().size(), 1u);
  EXPECT_EQ(last_sender_, a);
  EXPECT_NE(a, b);
  EXPECT_TRUE(IsAccepted(a) && IsAccepted(b));
  EXPECT_EQ(router_.peers(), 2u);

  EXPECT_EQ(router_.Send(b, FrameOf("for b")), SendResult::kSent);
  Parts parts;
  EXPECT_FALSE(first.Receive(&parts));
  ASSERT_TRUE(second.Receive(&parts));
  ASSERT_EQ(parts.count(), 1u);
  EXPECT_EQ(TextOf(parts[0]), "for b");
}

TEST_F(RouterTest, APeerThatReadsNothingIsFullAndAClosedOneIsForgotten) {
  std::optional<PolledSocket> lane(NewSocket());
  ASSERT_EQ(lane->Send({}, FrameOf("a")), SendResult::kSent);
  ASSERT_EQ(TakeFromRouter().size(), 1u);
  for (int i = 0; i < 2 * kHighWaterMark; ++i) ASSERT_EQ(router_.Send(last_sender_, FrameOf("x")), SendResult::kSent);
  EXPECT_EQ(router_.Send(last_sender_, FrameOf("x")), SendResult::kFull);
  EXPECT_EQ(router_.peers(), 1u);
  lane.reset();
  SendResult result = SendResult::kFull;
  for (int i = 0; i < 500 && result != SendResult::kUnreachable; ++i) {
    EXPECT_TRUE(TakeFromRouter().empty());  // the end of a connection is read like a message
    result = router_.Send(last_sender_, FrameOf("x"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(result, SendResult::kUnreachable);
  EXPECT_EQ(router_.peers(), 0u);
}

TEST_F(RouterTest, CountsConnectionsThatFail) {
  const auto endpoint = router_.Bind(&context_, "tcp://127.0.0.1:*");
  ASSERT_TRUE(endpoint);
  const Descriptor raw(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint->substr(endpoint->rfind(':') + 1))));
  ASSERT_EQ(connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string garbage(64, '\xff');
  ASSERT_GT(send(raw.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  for (int i = 0; i < 500 && router_.failures() == 0; ++i) {
    router_.CountFailures(INT64_MAX);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(router_.failures(), 1u);
}

TEST_F(RouterTest, APortInUseIsAnError) {
  const auto endpoint = router_.Bind(&context_, "tcp://127.0.0.1:*");
  ASSERT_TRUE(endpoint);
  Router other({.socket = kOptions, .accepted_peers_max = 1});
  const auto bound = other.Bind(&context_, *endpoint);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(bound.error().message, "cannot bind " + *endpoint + ": in use; choose another port, or '*' for a free one");
}

}  // namespace
}  // namespace tarn::net

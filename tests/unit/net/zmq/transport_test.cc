// Shows over loopback that messages and large pieces arrive whole and in order, in both directions and from many peers;
// that a peer which reads nothing does not block the sender; and that links reconnect after a restart.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "net/frame.h"
#include "tests/unit/net/fields.h"
#include "tests/unit/net/random_message.h"
#include "tests/unit/net/zmq/transport_fixture.h"

namespace tarn::net {
namespace {

TEST_F(TransportTest, MessagesArriveInBothDirections) {
  auto server = Make();
  auto client = Make();
  const auto endpoint = server->Bind("tcp://127.0.0.1:*");
  ASSERT_TRUE(endpoint) << ToString(endpoint.error());
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *endpoint));
  SplitMix random(5);
  for (std::size_t body = 0; body < std::variant_size_v<Body>; ++body) {
    const Message message = testing::RandomMessage(&random, body, body % 2 == 0 ? 5 : 50);
    client->Send(kSchedulerPeer, message);
    auto asked = Move(client.get(), server.get(), 1);
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_TRUE(testing::Equal(asked[0].message, message));
    EXPECT_GE(asked[0].from.value, kFirstAcceptedPeer);
    server->Send(asked[0].from, asked[0].message);
    auto answered = ReceiveN(client.get(), 1);
    ASSERT_EQ(answered.size(), 1u);
    EXPECT_TRUE(testing::Equal(answered[0].message, message));
    EXPECT_EQ(answered[0].from, kSchedulerPeer);
  }
  EXPECT_EQ(server->counters().accepted_peers, 1u);
  EXPECT_EQ(server->counters().received_messages, std::variant_size_v<Body>);
  EXPECT_EQ(client->counters().sent_bytes, server->counters().received_bytes);
}

TEST_F(TransportTest, LargePiecesArriveWholeAndInOrder) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(ShardPeer(ShardId(3)), *server->Bind("tcp://127.0.0.1:*")));
  constexpr std::uint64_t kPieces = 100;
  for (std::uint64_t n = 0; n < kPieces; ++n) client->Send(ShardPeer(ShardId(3)), Piece(n, n % 2 ? 4096 : 512 << 10));
  const std::vector<Received> got = Move(client.get(), server.get(), kPieces);
  ASSERT_EQ(got.size(), kPieces);
  for (std::uint64_t n = 0; n < kPieces; ++n) {
    EXPECT_EQ(std::get<PullReply>(got[n].message.body).request.value, n);
    const Buffer& values = ValuesOf(got[n]);
    ASSERT_EQ(values.size(), n % 2 ? 4096u : 512u << 10);
    EXPECT_EQ(static_cast<std::uint8_t>(values.data()[values.size() - 1]), n & 0xff);
  }
}

TEST_F(TransportTest, ManyPeersAreDistinguished) {
  auto server = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  std::vector<std::unique_ptr<ZmqTransport>> clients;
  for (std::uint64_t c = 0; c < 8; ++c) {
    clients.push_back(Make());
    ASSERT_TRUE(clients.back()->Connect(kSchedulerPeer, endpoint));
    clients.back()->Send(kSchedulerPeer, NumberedTick(c));
  }
  std::vector<Received> got;
  for (int i = 0; i < 500 && got.size() < 8; ++i) {
    for (auto& client : clients) client->Receive(&got, 0, 0);
    server->Receive(&got, 100, 10'000);
  }
  ASSERT_EQ(got.size(), 8u);
  for (const Received& r : got) server->Send(r.from, r.message);
  for (std::uint64_t c = 0; c < 8; ++c) {
    const auto answer = ReceiveN(clients[c].get(), 1);
    ASSERT_EQ(answer.size(), 1u);
    EXPECT_EQ(TickOf(answer[0]), c);
  }
}

TEST_F(TransportTest, ATransportConnectsToSeveralPeers) {
  auto first = Make();
  auto second = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(ShardPeer(ShardId(0)), *first->Bind("tcp://127.0.0.1:*")));
  ASSERT_TRUE(client->Connect(ShardPeer(ShardId(1)),
                              *second->Bind("ipc:///tmp/tarn-transport-test-" + std::to_string(getpid()))));
  client->Send(ShardPeer(ShardId(0)), NumberedTick(10));
  client->Send(ShardPeer(ShardId(1)), NumberedTick(11));
  const auto at_first = Move(client.get(), first.get(), 1);
  const auto at_second = Move(client.get(), second.get(), 1);
  ASSERT_EQ(at_first.size() + at_second.size(), 2u);
  EXPECT_EQ(TickOf(at_first[0]), 10u);
  EXPECT_EQ(TickOf(at_second[0]), 11u);
}

TEST_F(TransportTest, ReceiveKeepsItsMaximumAndTimeout) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Received> got;
  EXPECT_EQ(server->Receive(&got, 10, 50'000), 0u);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(49));
  for (std::uint64_t n = 0; n < 100; ++n) client->Send(kSchedulerPeer, NumberedTick(n));
  std::uint64_t expected = 0;
  for (int i = 0; i < 1000 && expected < 100; ++i) {
    std::vector<Received> none;
    client->Receive(&none, 0, 0);
    got.clear();
    EXPECT_LE(server->Receive(&got, 7, 10'000), 7u);
    for (const Received& r : got) EXPECT_EQ(TickOf(r), expected++);
  }
  EXPECT_EQ(expected, 100u);
}

TEST_F(TransportTest, WakeEndsAReceive) {
  auto server = Make();
  ASSERT_TRUE(server->Bind("tcp://127.0.0.1:*"));
  std::vector<Received> got;
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server->Wake();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(server->Receive(&got, 10, -1), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  waker.join();
  server->Wake();  // before the call
  EXPECT_EQ(server->Receive(&got, 10, -1), 0u);
}

// The server reads nothing: sends return, waiting bytes are bounded, and kept messages arrive in order.
TEST_F(TransportTest, APeerThatReadsNothingDoesNotBlock) {
  auto server = Make({.high_water_mark = 4, .backlog_bytes_max = std::size_t{4} << 20});
  auto client = Make({.high_water_mark = 4, .backlog_bytes_max = std::size_t{4} << 20});
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  client->Send(kSchedulerPeer, NumberedTick(0));
  std::vector<Received> none;
  for (int i = 0; i < 100 && client->counters().sent_messages == 0; ++i) client->Receive(&none, 0, 10'000);
  constexpr std::uint64_t kPieces = 300;
  for (std::uint64_t n = 1; n <= kPieces; ++n) client->Send(kSchedulerPeer, Piece(n, 512 << 10));
  const TransportCounters after = client->counters();
  EXPECT_GT(after.dropped_backlog, 0u);
  EXPECT_GT(after.backlog_bytes, 0u);
  EXPECT_LE(after.backlog_bytes, std::size_t{4} << 20);
  const std::uint64_t kept = 1 + kPieces - after.dropped_backlog;
  const std::vector<Received> got = Move(client.get(), server.get(), kept);
  ASSERT_EQ(got.size(), kept);
  for (std::uint64_t n = 1; n < kept; ++n) EXPECT_EQ(std::get<PullReply>(got[n].message.body).request.value, n);
  EXPECT_EQ(client->counters().backlog_bytes, 0u);
}

// The same towards a peer that connected to us: a ROUTER must not drop silently.
TEST_F(TransportTest, AnAcceptedPeerThatReadsNothingDoesNotBlock) {
  auto server = Make({.high_water_mark = 4, .backlog_bytes_max = std::size_t{64} << 20});
  auto client = Make({.high_water_mark = 4});
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  client->Send(kSchedulerPeer, NumberedTick(0));
  const std::vector<Received> asked = Move(client.get(), server.get(), 1);
  ASSERT_EQ(asked.size(), 1u);
  constexpr std::uint64_t kPieces = 100;
  for (std::uint64_t n = 0; n < kPieces; ++n) server->Send(asked[0].from, Piece(n, 512 << 10));
  EXPECT_GT(server->counters().backlog_bytes, 0u);
  const std::vector<Received> got = Move(server.get(), client.get(), kPieces);
  ASSERT_EQ(got.size(), kPieces);
  for (std::uint64_t n = 0; n < kPieces; ++n) EXPECT_EQ(std::get<PullReply>(got[n].message.body).request.value, n);
}

TEST_F(TransportTest, ReconnectsAfterARestartOnTheSamePort) {
  auto server = Make();
  auto client = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  client->Send(kSchedulerPeer, NumberedTick(1));
  std::vector<Received> got = Move(client.get(), server.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  server.reset();
  std::vector<Received> none;
  client->Receive(&none, 1, 50'000);
  server = Make();
  for (int i = 0; i < 100; ++i) {  // the old socket's port may need a moment
    if (server->Bind(endpoint)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  got.clear();
  for (int i = 0; i < 500 && got.empty(); ++i) {
    client->Send(kSchedulerPeer, NumberedTick(2));
    client->Receive(&none, 1, 1000);
    server->Receive(&got, 1, 10'000);
  }
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(TickOf(got[0]), 2u);
  server->Send(got[0].from, NumberedTick(3));
  auto answer = ReceiveN(client.get(), 1);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(TickOf(answer[0]), 3u);
}

TEST_F(TransportTest, AnotherEndpointReplacesTheFirst) {
  auto first = Make();
  auto second = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *first->Bind("tcp://127.0.0.1:*")));
  client->Send(kSchedulerPeer, NumberedTick(1));
  ASSERT_EQ(Move(client.get(), first.get(), 1).size(), 1u);
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *second->Bind("tcp://127.0.0.1:*")));
  client->Send(kSchedulerPeer, NumberedTick(2));
  EXPECT_EQ(Move(client.get(), second.get(), 1).size(), 1u);
  EXPECT_EQ(ReceiveN(first.get(), 1, 50'000).size(), 0u);
}

TEST_F(TransportTest, ClosedPeersAreForgotten) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  client->Send(kSchedulerPeer, NumberedTick(1));
  const std::vector<Received> got = Move(client.get(), server.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  client.reset();
  const bool forgotten = ReceiveUntil(server.get(), [&] {
    server->Send(got[0].from, NumberedTick(2));
    return server->counters().accepted_peers == 0;
  });
  EXPECT_TRUE(forgotten);
  EXPECT_GT(server->counters().dropped_unreachable, 0u);
  server->Send(Peer(77), NumberedTick(1));  // never connected
}

TEST_F(TransportTest, TheSystemChoosesAPort) {
  for (const char* endpoint : {"tcp://127.0.0.1:*", "tcp://127.0.0.1:0"}) {
    const auto bound = Make()->Bind(endpoint);
    ASSERT_TRUE(bound) << ToString(bound.error());
    EXPECT_GT(std::stoi(bound->substr(bound->rfind(':') + 1)), 0);
  }
}

TEST_F(TransportTest, APortInUseIsAnError) {
  auto server = Make();
  auto other = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  const auto again = other->Bind(endpoint);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(again.error().message, "cannot bind " + endpoint + ": in use; choose another port, or '*' for a free one");
}

TEST_F(TransportTest, InvalidAddressesAreErrors) {
  auto transport = Make();
  for (const char* endpoint :
       {"tcp://127.0.0.1", "tcp://127.0.0.1:port", "ipc://", "ipc://@name", "ipc://name", "tcp://127.0.0.1:65536"}) {
    const auto bound = transport->Bind(endpoint);
    ASSERT_FALSE(bound) << endpoint;
    EXPECT_EQ(bound.error().code, ErrorCode::kInvalidArgument) << endpoint << " " << bound.error().message;
  }
  for (const char* endpoint : {"127.0.0.1:7700", "http://127.0.0.1:7700", ""}) {
    const Status connected = transport->Connect(kSchedulerPeer, endpoint);
    ASSERT_FALSE(connected) << endpoint;
    EXPECT_EQ(connected.error().message, std::string(endpoint) + ": expected tcp://HOST:PORT with a port up to 65535");
  }
  EXPECT_FALSE(transport->Connect(kSchedulerPeer, "tcp://"));
  EXPECT_FALSE(transport->Connect(kSchedulerPeer, "nonsense"));
}

TEST_F(TransportTest, TcpNeedsKeysOrInsecure) {
  ZmqContext context;
  ZmqTransport transport(&context, {.linger_ms = 0});
  for (const char* endpoint : {"tcp://127.0.0.1:*", "tcp://0.0.0.0:*", "tcp://localhost:1"}) {
    const auto refused = transport.Bind(endpoint);
    ASSERT_FALSE(refused) << endpoint;
    EXPECT_EQ(refused.error().message, std::string(endpoint) +
                                           ": any user of the host can connect to a TCP address: expected keys (--keys "
                                           "FILE, made by tarn-keys), ipc:// in a folder of mode 0700, or --insecure");
    EXPECT_FALSE(transport.Connect(kSchedulerPeer, endpoint));
  }
  EXPECT_TRUE(Make()->Bind("tcp://0.0.0.0:*"));
}

}  // namespace
}  // namespace tarn::net

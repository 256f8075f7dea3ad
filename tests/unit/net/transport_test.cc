// Shows over loopback: messages and large pieces arrive whole and in order, both ways and from many peers; nothing
// blocks when a peer takes nothing; links come back after a restart; and garbage of every kind is counted, answered
// where somebody listens, and otherwise without effect.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/limits.h"
#include "net/frame.h"
#include "net/zmq_transport.h"
#include "tests/unit/net/fields.h"
#include "tests/unit/net/random_message.h"

namespace tarn::net {
namespace {

constexpr std::int64_t kSecondUs = 1'000'000;

Message NumberedTick(std::uint64_t n) {
  Message message;
  message.body = Tick{.clock = Clock(n)};
  return message;
}

// A push of `bytes` of values whose first word is `n`.
Message Piece(std::uint64_t n, std::size_t bytes) {
  Message message;
  message.body = PullReply{.request = RequestId(n), .count = 1024};
  message.values = Buffer::Allocate(bytes);
  std::memset(message.values.data(), static_cast<int>(n & 0xff), bytes);
  return message;
}

std::uint64_t TickOf(const Received& r) { return std::get<Tick>(r.message.body).clock.value; }

class TransportTest : public ::testing::Test {
 protected:
  std::unique_ptr<ZmqTransport> Make(ZmqTransportOptions options = {}) {
    options.linger_ms = 0;
    return std::make_unique<ZmqTransport>(&context_, options);
  }

  // What `transport` receives until there are `n` messages or `limit_us` has passed.
  static std::vector<Received> ReceiveN(Transport* transport, std::size_t n, std::int64_t limit_us = 10 * kSecondUs) {
    std::vector<Received> got;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(limit_us);
    while (got.size() < n && std::chrono::steady_clock::now() < end) transport->Receive(&got, n - got.size(), 20'000);
    return got;
  }

  // What `to` receives of what `from` has sent, until there are `n`. A sender must run too: what it sent before the
  // connection stood waits in it.
  static std::vector<Received> Move(Transport* from, Transport* to, std::size_t n) {
    std::vector<Received> got;
    for (int i = 0; i < 1000 && got.size() < n; ++i) {
      from->Receive(&got, 0, 0);
      to->Receive(&got, n - got.size(), 5'000);
    }
    return got;
  }

  // Receives on `transport` until `done`, for at most five seconds.
  static bool ReceiveUntil(Transport* transport, const std::function<bool()>& done) {
    std::vector<Received> got;
    for (int i = 0; i < 500 && !done(); ++i) transport->Receive(&got, 16, 10'000);
    return done();
  }

  ZmqContext context_;
};

TEST_F(TransportTest, Echo) {
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

TEST_F(TransportTest, OrderAndWholenessOfLargePieces) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(ShardPeer(ShardId(3)), *server->Bind("tcp://127.0.0.1:*")));
  constexpr std::uint64_t kPieces = 100;
  for (std::uint64_t n = 0; n < kPieces; ++n) client->Send(ShardPeer(ShardId(3)), Piece(n, n % 2 ? 4096 : 512 << 10));
  const std::vector<Received> got = Move(client.get(), server.get(), kPieces);
  ASSERT_EQ(got.size(), kPieces);
  for (std::uint64_t n = 0; n < kPieces; ++n) {
    EXPECT_EQ(std::get<PullReply>(got[n].message.body).request.value, n);
    const Buffer& values = got[n].message.values;
    ASSERT_EQ(values.size(), n % 2 ? 4096u : 512u << 10);
    EXPECT_EQ(static_cast<std::uint8_t>(values.data()[values.size() - 1]), n & 0xff);
  }
}

TEST_F(TransportTest, ManyPeersAreToldApart) {
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

TEST_F(TransportTest, OneSocketForSeveralPeersThatItConnectsTo) {
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

TEST_F(TransportTest, ReceiveKeepsToItsMaximumAndTimeout) {
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

// A server that reads nothing: sends keep returning, what waits is bounded, and what was kept arrives in order.
TEST_F(TransportTest, APeerThatTakesNothing) {
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
TEST_F(TransportTest, AnAcceptedPeerThatTakesNothing) {
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

TEST_F(TransportTest, ComesBackAfterARestartOnTheSamePort) {
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

TEST_F(TransportTest, PeersThatAreGoneAreForgotten) {
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

TEST_F(TransportTest, PortInUse) {
  auto server = Make();
  auto other = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  const auto again = other->Bind(endpoint);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(again.error().message, "cannot bind " + endpoint + ": in use; choose another port, or '*' for a free one");
}

TEST_F(TransportTest, AddressesThatAreNone) {
  auto transport = Make();
  for (const char* endpoint : {"tcp://127.0.0.1", "tcp://127.0.0.1:port", "ipc://", "tcp://127.0.0.1:65536"}) {
    const auto bound = transport->Bind(endpoint);
    ASSERT_FALSE(bound) << endpoint;
    EXPECT_EQ(bound.error().code, ErrorCode::kInvalidArgument) << endpoint << " " << bound.error().message;
  }
  EXPECT_FALSE(transport->Connect(kSchedulerPeer, "tcp://"));
  EXPECT_FALSE(transport->Connect(kSchedulerPeer, "nonsense"));
}

TEST_F(TransportTest, OnlyLoopbackWithoutKeys) {
  for (const char* endpoint :
       {"tcp://127.0.0.1:*", "tcp://127.8.9.1:80", "tcp://localhost:1", "tcp://[::1]:1", "ipc:///x"})
    EXPECT_TRUE(IsLoopback(endpoint)) << endpoint;
  for (const char* endpoint :
       {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://10.0.0.1:1", "tcp://127.example.org:1", "tcp://localhost.example.org:1",
        "tcp://[::]:1", "tcp://127.0.0.1:0;10.0.0.1:1", "tcp://localhost:0;10.0.0.1:1", "pgm://127.0.0.1:1", ""})
    EXPECT_FALSE(IsLoopback(endpoint)) << endpoint;
  auto transport = Make();
  const auto refused = transport->Bind("tcp://0.0.0.0:*");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "CURVE keys are required for non-loopback address tcp://0.0.0.0:*; --insecure says otherwise");
  EXPECT_FALSE(transport->Connect(kSchedulerPeer, "tcp://10.1.2.3:5"));
  EXPECT_TRUE(Make({.insecure = true})->Bind("tcp://0.0.0.0:*"));
}

// A stranger with a ZeroMQ socket of its own.
class Stranger {
 public:
  explicit Stranger(const std::string& endpoint) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    const int none = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof(none));
    zmq_connect(socket_, endpoint.c_str());
  }
  ~Stranger() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      zmq_send(socket_, parts[i].data(), parts[i].size(), i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
  }
  // One frame within five seconds, else an empty one.
  Buffer Receive() {
    zmq_pollitem_t item{socket_, 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, 5000) <= 0) return {};
    std::string bytes(1 << 16, 0);
    const int size = zmq_recv(socket_, bytes.data(), bytes.size(), 0);
    return Buffer::Copy(bytes.data(), static_cast<std::size_t>(size));
  }

 private:
  void* context_;
  void* socket_;
};

TEST_F(TransportTest, GarbageIsCountedAnsweredAndWithoutEffect) {
  auto server = Make();
  auto client = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  Stranger stranger(endpoint);
  stranger.Send({"hello"});
  stranger.Send({"", "hello"});
  stranger.Send({std::string(100'000, 'x')});
  stranger.Send({""});
  EXPECT_TRUE(ReceiveUntil(server.get(), [&] { return server->counters().refused_malformed == 4; }));
  const Buffer answer = stranger.Receive();
  const auto message = Decode(std::span<const Buffer>(&answer, 1));
  ASSERT_TRUE(message) << ToString(message.error());
  EXPECT_EQ(std::get<ErrorReply>(message->body).code, ErrorCode::kMalformed);
  EXPECT_EQ(std::get<ErrorReply>(message->body).message, "prefix: 5 bytes, expected 16");

  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  client->Send(kSchedulerPeer, NumberedTick(9));
  const std::vector<Received> got = Move(client.get(), server.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(TickOf(got[0]), 9u);
}

// The same message as another version might send it: only the magic number and the version's place are known of it.
std::string InVersion(std::uint8_t version) {
  const Buffer frame = (*Encode(NumberedTick(1)))[0];
  std::string bytes(reinterpret_cast<const char*>(frame.data()), 5);
  bytes[4] = static_cast<char>(version);
  return bytes + "of another length and form";
}

// A node of another version that joins: it can read our version in the answer.
TEST_F(TransportTest, ANodeOfAnotherVersionIsCountedAndToldOurs) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  for (const auto& [version, count] : {std::pair<std::uint8_t, std::uint64_t>{0, 1}, {2, 2}, {255, 3}}) {
    stranger.Send({InVersion(version), "more", "frames", "than", "ours"});
    EXPECT_TRUE(ReceiveUntil(server.get(), [&] { return server->counters().refused_version == count; }));
    const Buffer answer = stranger.Receive();
    EXPECT_EQ(VersionOf({answer.data(), answer.size()}), limits::kProtocolVersion);
    const auto message = Decode(std::span<const Buffer>(&answer, 1));
    ASSERT_TRUE(message) << ToString(message.error());
    EXPECT_EQ(std::get<ErrorReply>(message->body).code, ErrorCode::kWrongJob);
  }
  EXPECT_EQ(server->counters().refused_malformed, 0u);
  EXPECT_EQ(server->counters().received_messages, 0u);
}

// A fleet of another version that our node joins: whatever it answers, the node is told to stop and why.
TEST_F(TransportTest, AFleetOfAnotherVersionEndsOurNode) {
  void* context = zmq_ctx_new();
  void* router = zmq_socket(context, ZMQ_ROUTER);
  ASSERT_EQ(zmq_bind(router, "tcp://127.0.0.1:*"), 0);
  char endpoint[256];
  std::size_t size = sizeof(endpoint);
  ASSERT_EQ(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size), 0);
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  client->Send(kSchedulerPeer, NumberedTick(1));
  std::vector<Received> got;
  char identity[256];
  int identity_bytes = -1;
  for (int i = 0; i < 500 && identity_bytes < 0; ++i) {
    client->Receive(&got, 0, 0);
    identity_bytes = zmq_recv(router, identity, sizeof(identity), ZMQ_DONTWAIT);
    if (identity_bytes < 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GT(identity_bytes, 0);
  zmq_send(router, identity, static_cast<std::size_t>(identity_bytes), ZMQ_SNDMORE);
  const std::string answer = InVersion(7);
  zmq_send(router, answer.data(), answer.size(), 0);
  got = ReceiveN(client.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].from, kSchedulerPeer);
  EXPECT_EQ(got[0].message.sender.role, Role::kScheduler);
  const auto& shutdown = std::get<Shutdown>(got[0].message.body);
  EXPECT_EQ(shutdown.code, ErrorCode::kWrongJob);
  EXPECT_EQ(shutdown.reason, "this node speaks protocol 1, the fleet 7");
  EXPECT_EQ(client->counters().refused_version, 1u);
  zmq_close(router);
  zmq_ctx_term(context);
}

// More frames or bytes than a message may have: nothing but the beginning is kept, the next message is read well.
TEST_F(TransportTest, BombsOfManyFrames) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  stranger.Send(std::vector<std::string>(1000, "frame"));
  stranger.Send(std::vector<std::string>(2, std::string(50 << 20, 'x')));
  const Buffer good = (*Encode(NumberedTick(5)))[0];
  stranger.Send({std::string(reinterpret_cast<const char*>(good.data()), good.size())});
  const auto got = ReceiveN(server.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(TickOf(got[0]), 5u);
  EXPECT_EQ(server->counters().refused_too_large, 2u);
}

// A stranger that speaks ZMTP 3.0 (ZeroMQ RFC 23) over a bare connection, since ZeroMQ itself sends only whole
// messages.
class BareStranger {
 public:
  explicit BareStranger(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    std::string greeting(64, '\0');
    greeting[0] = '\xff';
    greeting[9] = '\x7f';
    greeting[10] = 3;
    greeting.replace(12, 4, "NULL");
    const std::string ready(
        "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
        "DEALER",
        30);
    ok_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && Send(greeting + ready);
    std::string theirs(64, 0);  // to be read, or closing the connection would reset it
    ok_ = ok_ && recv(fd_, theirs.data(), theirs.size(), MSG_WAITALL) == 64;
  }
  ~BareStranger() { close(fd_); }
  bool ok() const { return ok_; }
  // False: the connection is over.
  bool SendPart(std::size_t bytes, bool more) {
    std::string frame(9, 0);
    frame[0] = more ? 3 : 2;
    for (std::size_t i = 0; i < 8; ++i) frame[1 + i] = static_cast<char>(bytes >> (56 - 8 * i));
    return Send(frame + std::string(bytes, 'x'));
  }

 private:
  bool Send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return true;
  }
  int fd_;
  bool ok_ = false;
};

// ZeroMQ would keep all parts of it.
TEST_F(TransportTest, AMessageWithoutEndEndsItsConnection) {
  constexpr std::size_t kPart = 64 << 10, kPartsMax = 16;
  auto server = Make({.unfinished_bytes_max = kPart * kPartsMax});
  auto client = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  BareStranger within(endpoint), beyond(endpoint);
  ASSERT_TRUE(within.ok() && beyond.ok());
  // Just within the bound, however long it takes; but for the connection's greeting.
  for (std::size_t i = 0; i + 1 < kPartsMax; ++i) ASSERT_TRUE(within.SendPart(kPart - 9, true));
  std::vector<Received> got;
  bool open = true;
  for (std::size_t parts = 0; open && parts < 10'000; ++parts) {
    open = beyond.SendPart(kPart, true);
    server->Receive(&got, 16, parts % 16 == 0 ? 20'000 : 0);
  }
  EXPECT_FALSE(open);
  EXPECT_EQ(server->counters().refused_too_large, 1u);
  ASSERT_TRUE(within.SendPart(10, false));
  EXPECT_TRUE(ReceiveUntil(server.get(), [&] { return server->counters().refused_too_large == 2; }));  // as too many
  client->Send(kSchedulerPeer, NumberedTick(9));
  got = Move(client.get(), server.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(TickOf(got[0]), 9u);
}

std::string Bytes(const Message& message) {
  const Buffer frame = (*Encode(message))[0];
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

// Small messages of one Send travel together; the order to a peer stays, also around large ones, and so do the counts.
TEST_F(TransportTest, BundlesKeepTheOrder) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  Outbox out;
  for (std::uint64_t n = 0; n < 300; ++n)
    out.push_back({kSchedulerPeer, n % 100 == 50 ? Piece(n, 128 << 10) : NumberedTick(n)});
  client->Send(out);
  const auto got = Move(client.get(), server.get(), 300);
  ASSERT_EQ(got.size(), 300u);
  for (std::uint64_t n = 0; n < 300; ++n) {
    const auto* reply = std::get_if<PullReply>(&got[n].message.body);
    EXPECT_EQ(reply != nullptr ? reply->request.value : TickOf(got[n]), n);
  }
  EXPECT_EQ(client->counters().sent_messages, 300u);
  EXPECT_EQ(server->counters().received_messages, 300u);
  EXPECT_EQ(client->counters().sent_bytes, server->counters().received_bytes);
}

// Each message of a bundle stands for itself; one message more than a bundle may have, and none is taken.
TEST_F(TransportTest, BundlesOfAStranger) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  std::string damaged = Bytes(NumberedTick(2));
  damaged.resize(damaged.size() - 9);
  stranger.Send({Bytes(NumberedTick(1)), damaged, Bytes(NumberedTick(3))});
  stranger.Send(std::vector<std::string>(limits::kBundleMessagesMax, Bytes(NumberedTick(4))));
  stranger.Send(std::vector<std::string>(limits::kBundleMessagesMax + 1, Bytes(NumberedTick(5))));
  stranger.Send({Bytes(NumberedTick(6))});
  const auto got = ReceiveN(server.get(), 3 + limits::kBundleMessagesMax);
  ASSERT_EQ(got.size(), 3 + limits::kBundleMessagesMax);
  EXPECT_EQ(TickOf(got[0]), 1u);
  EXPECT_EQ(TickOf(got[1]), 3u);
  EXPECT_EQ(TickOf(got[2]), 4u);
  EXPECT_EQ(TickOf(got.back()), 6u);
  EXPECT_EQ(server->counters().refused_malformed, 1u);
  EXPECT_EQ(server->counters().refused_too_large, 1u);
}

// Refused messages use up a turn's budget: those behind them must not wait for the next sign of life.
TEST_F(TransportTest, AGoodMessageBehindManyBadOnes) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  for (int i = 0; i < 1000; ++i) stranger.Send({"garbage"});
  stranger.Send({Bytes(NumberedTick(7))});
  std::vector<Received> got;
  EXPECT_EQ(server->Receive(&got, 16, 60 * kSecondUs), 1u);
  EXPECT_EQ(server->counters().refused_malformed, 1000u);
}

// What travels together is one ZeroMQ message, so that one wake-up serves it.
TEST_F(TransportTest, SmallMessagesAreOneMessageOfManyParts) {
  auto client = Make();
  void* context = zmq_ctx_new();
  void* router = zmq_socket(context, ZMQ_ROUTER);
  const int none = 0;
  zmq_setsockopt(router, ZMQ_LINGER, &none, sizeof(none));
  ASSERT_EQ(zmq_bind(router, "tcp://127.0.0.1:*"), 0);
  std::array<char, 256> endpoint{};
  std::size_t size = endpoint.size();
  zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint.data(), &size);
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint.data()));
  client->Send(Outbox{{kSchedulerPeer, NumberedTick(1)}, {kSchedulerPeer, NumberedTick(2)}});
  std::vector<Received> got;
  zmq_pollitem_t item{router, 0, ZMQ_POLLIN, 0};
  for (int i = 0; i < 500 && zmq_poll(&item, 1, 10) <= 0; ++i) client->Receive(&got, 0, 0);
  int parts = 0;
  for (bool more = true; more; ++parts) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    ASSERT_GE(zmq_msg_recv(&part, router, ZMQ_DONTWAIT), 0);
    more = zmq_msg_more(&part) != 0;
    zmq_msg_close(&part);
  }
  EXPECT_EQ(parts, 3);  // the identity and two ticks
  zmq_close(router);
  zmq_ctx_term(context);
}

// One frame over ZMQ_MAXMSGSIZE ends the stranger's connection, not the server.
TEST_F(TransportTest, OversizeFrame) {
  auto server = Make();
  auto client = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  Stranger stranger(endpoint);
  stranger.Send({std::string(limits::kFrameBytesMax + 1, 'x')});
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  client->Send(kSchedulerPeer, NumberedTick(9));
  const std::vector<Received> got = Move(client.get(), server.get(), 1);
  EXPECT_EQ(got.size(), 1u);
}

// Bytes on the bare port: another protocol, noise, a connection that is opened and closed.
TEST_F(TransportTest, RawBytesOnThePort) {
  auto server = Make();
  auto client = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  SplitMix random(11);
  for (int i = 0; i < 60; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    std::string bytes(random.Below(300), 0);
    for (char& c : bytes) c = static_cast<char>(random.Next());
    if (i % 3 == 0) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    if (i % 3 == 1) bytes = std::string("\xff\0\0\0\0\0\0\0\1\x7f", 10) + bytes;
    [[maybe_unused]] const auto n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  client->Send(kSchedulerPeer, NumberedTick(9));
  const std::vector<Received> got = Move(client.get(), server.get(), 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(TickOf(got[0]), 9u);
}

}  // namespace
}  // namespace tarn::net

// Shows over loopback that garbage of every kind, other versions, endless messages and bundles of strangers are
// counted, answered if the stranger can read an answer, and otherwise have no effect; and how our own bundles look to a
// stranger.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/descriptor.h"
#include "core/hash.h"
#include "core/limits.h"
#include "net/frame.h"
#include "tests/unit/net/zmq/transport_fixture.h"

namespace tarn::net {
namespace {

// A peer with its own ZeroMQ socket, which may send any frames.
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
  // Receives one frame. Returns an empty one after five seconds.
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

TEST_F(TransportTest, GarbageIsCountedAndAnsweredAndHasNoEffect) {
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

// A bare TCP connection, to send any bytes.
class RawConnection {
 public:
  explicit RawConnection(const std::string& endpoint) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  void Send(std::string_view bytes) const {
    [[maybe_unused]] const auto sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Returns whether the other side closes it within five seconds, whatever it sends before.
  bool IsEnded() const {
    std::array<char, 512> bytes;
    for (pollfd file{socket_.get(), POLLIN, 0}; poll(&file, 1, 5000) > 0;)
      if (recv(socket_.get(), bytes.data(), bytes.size(), 0) <= 0) return true;
    return false;
  }

 private:
  Descriptor socket_;
};

using namespace std::string_literals;
const std::string kUnversioned = "\3\0AB"s;                                    // its routing id
const std::string kVersion1 = "\xff\0\0\0\0\0\0\0\1\x7f\0\5"s + kUnversioned;  // signature, revision 0, socket type
const std::string kVersion2 = "\xff\0\0\0\0\0\0\0\1\x7f\1\5\0\2AB"s;           // revision 1

// These peers could abort the process; see net/README.md.
TEST_F(TransportTest, PeersOfOldProtocolsAreRejected) {
  auto server = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  for (const std::string& greeting : {kUnversioned, kVersion1, kVersion2}) {
    const RawConnection peer(endpoint);
    peer.Send(greeting);
    peer.Send("\6\0hello"s);
    EXPECT_TRUE(peer.IsEnded()) << greeting;
  }
  EXPECT_EQ(server->counters().accepted_peers, 0u);
  EXPECT_EQ(server->counters().refused_malformed, 0u);
}

// Messages that arrive while a socket is being closed reach an engine whose pipe accepts no more.
TEST_F(TransportTest, GarbageWhileItClosesDoesNotAbort) {
  constexpr int kRounds = 30, kPeers = 60;
  for (int round = 0; round < kRounds; ++round) {
    ZmqContext context;
    auto server = std::make_unique<ZmqTransport>(&context, ZmqTransportOptions{.insecure = true, .linger_ms = 0});
    const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
    std::vector<std::unique_ptr<RawConnection>> peers;
    peers.reserve(kPeers);
    for (int i = 0; i < kPeers; ++i) peers.push_back(std::make_unique<RawConnection>(endpoint));
    for (const auto& peer : peers) peer->Send("\3\0"s);
    std::thread rest([&] {
      for (const auto& peer : peers) peer->Send("AB");
    });
    server.reset();
    rest.join();
    ZmqTransport next(&context, {.insecure = true});
    EXPECT_TRUE(next.Bind("tcp://127.0.0.1:*"));  // the context lives on
  }
}

// ZeroMQ stops reading from a peer whose queue is full. If that peer then ends, a heartbeat of ZeroMQ would abort the
// process: net/README.md.
TEST_F(TransportTest, APeerThatEndsBehindAFullQueueDoesNotAbort) {
  constexpr std::chrono::milliseconds kPause(1500);  // more than a second, which heartbeats of ZeroMQ would have
  auto server = std::make_unique<ZmqTransport>(&context_, ZmqTransportOptions{.insecure = true, .high_water_mark = 4});
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  {
    Stranger stranger(endpoint);
    for (int i = 0; i < 500; ++i) stranger.Send({"hello"});
    std::this_thread::sleep_for(kPause);
  }
  std::this_thread::sleep_for(kPause);
  EXPECT_TRUE(ReceiveUntil(server.get(), [&] { return server->counters().refused_malformed >= 4; }));
}

// A message as another version might send it: it has only the magic number and the version in common with ours.
std::string InVersion(std::uint8_t version) {
  const Buffer frame = (*Encode(NumberedTick(1)))[0];
  std::string bytes(reinterpret_cast<const char*>(frame.data()), 5);
  bytes[4] = static_cast<char>(version);
  return bytes + "of another length and form";
}

// A node of another version joins. It can read our version in the answer.
TEST_F(TransportTest, ANodeOfAnotherVersionIsCountedAndAnsweredWithOurs) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  for (const auto& [version, count] :
       {std::pair<std::uint8_t, std::uint64_t>{0, 1}, {limits::kProtocolVersion + 1, 2}, {255, 3}}) {
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

// Our node joins a fleet of another version: whatever the fleet answers, the node is stopped with the reason.
TEST_F(TransportTest, AFleetOfAnotherVersionStopsOurNode) {
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
  EXPECT_EQ(shutdown.reason, fmt::format("this node speaks protocol {}, the fleet 7", limits::kProtocolVersion));
  EXPECT_EQ(client->counters().refused_version, 1u);
  zmq_close(router);
  zmq_ctx_term(context);
}

// Messages with more frames or bytes than allowed: only their beginning is kept, and the next message is received.
TEST_F(TransportTest, MessagesOfTooManyFramesAreRefused) {
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
  // Returns false if the connection is closed.
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
TEST_F(TransportTest, AnEndlessMessageEndsItsConnection) {
  constexpr std::size_t kPart = 64 << 10, kPartsMax = 16;
  auto server = Make({.unfinished_bytes_max = kPart * kPartsMax});
  auto client = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  ASSERT_TRUE(client->Connect(kSchedulerPeer, endpoint));
  BareStranger within(endpoint), beyond(endpoint);
  ASSERT_TRUE(within.ok() && beyond.ok());
  // Just within the bound, with room for the connection's greeting.
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

// Small messages of one Send are sent together. The order to a peer is kept, also around large ones, and all are
// counted.
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

// Messages before and after it are sent nevertheless.
TEST_F(TransportTest, AMessageThatCannotBeEncodedIsLeftOut) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  Message bad = NumberedTick(2);
  bad.body = CreateTable{};
  std::get<CreateTable>(bad.body).spec.name = std::string(limits::kNameBytesMax + 1, 'x');
  const Outbox out = {{kSchedulerPeer, NumberedTick(1)}, {kSchedulerPeer, bad}, {kSchedulerPeer, NumberedTick(3)}};
  client->Send(out);
  const auto got = Move(client.get(), server.get(), 2);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(TickOf(got[0]), 1u);
  EXPECT_EQ(TickOf(got[1]), 3u);
  EXPECT_EQ(client->counters().dropped_unencodable, 1u);
}

std::string Bundle(const std::vector<std::string>& messages) {
  BundleWriter writer;
  for (const std::string& message : messages) std::memcpy(writer.Place(message.size()), message.data(), message.size());
  const FrameView frame = writer.Finish();
  return {reinterpret_cast<const char*>(frame.data), frame.size};
}

// Each message of a bundle is checked alone. No message of an invalid bundle, or of one that is followed by frames, is
// accepted.
TEST_F(TransportTest, EachMessageOfAStrangersBundleIsCheckedAlone) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  std::string damaged = Bytes(NumberedTick(2));
  damaged.resize(damaged.size() - 9);
  stranger.Send({Bundle({Bytes(NumberedTick(1)), damaged, Bytes(NumberedTick(3))})});
  stranger.Send({Bundle(std::vector<std::string>(limits::kBundleMessagesMax, Bytes(NumberedTick(4))))});
  const std::string two = Bundle({Bytes(NumberedTick(5)), Bytes(NumberedTick(5))});
  stranger.Send({two.substr(0, two.size() - 8)});
  stranger.Send({two, Bytes(NumberedTick(5))});
  std::string many = two;
  many[12] = limits::kBundleMessagesMax + 1;
  stranger.Send({many});
  stranger.Send({Bundle({two, two})});  // a bundle in a bundle
  stranger.Send({Bytes(NumberedTick(6))});
  const auto got = ReceiveN(server.get(), 3 + limits::kBundleMessagesMax);
  ASSERT_EQ(got.size(), 3 + limits::kBundleMessagesMax);
  EXPECT_EQ(TickOf(got[0]), 1u);
  EXPECT_EQ(TickOf(got[1]), 3u);
  EXPECT_EQ(TickOf(got[2]), 4u);
  EXPECT_EQ(TickOf(got.back()), 6u);
  EXPECT_EQ(server->counters().refused_malformed, 5u);
  EXPECT_EQ(server->counters().refused_too_large, 1u);
}

// Refused messages use up a turn's budget; messages after them must not wait for the next event of the socket.
TEST_F(TransportTest, AValidMessageAfterManyInvalidOnesIsReceived) {
  auto server = Make();
  Stranger stranger(*server->Bind("tcp://127.0.0.1:*"));
  for (int i = 0; i < 1000; ++i) stranger.Send({"garbage"});
  stranger.Send({Bytes(NumberedTick(7))});
  std::vector<Received> got;
  EXPECT_EQ(server->Receive(&got, 16, 60 * kSecondUs), 1u);
  EXPECT_EQ(server->counters().refused_malformed, 1000u);
}

// A bundle is one ZeroMQ message, so that one wake-up is enough.
TEST_F(TransportTest, SmallMessagesAreOneFrame) {
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
  EXPECT_EQ(parts, 2);  // the identity and both ticks
  zmq_close(router);
  zmq_ctx_term(context);
}

// One frame over ZMQ_MAXMSGSIZE ends the stranger's connection, not the server.
TEST_F(TransportTest, AnOversizeFrameEndsItsConnection) {
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

// Bytes over bare TCP: another protocol, noise, and a connection that is opened and closed.
TEST_F(TransportTest, RawBytesOnThePortHaveNoEffect) {
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
    if (i % 3 == 1) bytes.insert(0, "\xff\0\0\0\0\0\0\0\1\x7f", 10);
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

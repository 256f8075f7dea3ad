// Shows that transports on one host share memory without configuration, that no message is lost or overtaken at the
// change, and that they work without it if a peer is killed or does not want it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/log.h"
#include "core/thread_time.h"
#include "net/frame.h"
#include "net/shm_channel.h"
#include "net/shm_handshake.h"
#include "net/wake_file.h"
#include "tests/unit/net/zmq/transport_fixture.h"

namespace tarn::net {
namespace {

const Peer kServer = ShardPeer(ShardId(0));

class ShmTransportTest : public TransportTest {
 protected:
  // Lets both run until memory is shared, or for a while.
  static bool Share(Transport* a, Transport* b, int turns = 2'000) {
    std::vector<Received> none;
    for (int i = 0; i < turns; ++i) {
      if (a->counters().shm_peers == 1 && b->counters().shm_peers == 1) return true;
      a->Receive(&none, 16, 1'000);
      b->Receive(&none, 16, 1'000);
    }
    return false;
  }
  // Copies of the sockets of this process that are connected to a named one (a client's, for shared memory), as a
  // forked process has them.
  static std::vector<Descriptor> CopiesOfClientSockets() {
    constexpr int kCopiesFrom = 512;  // so that the loop does not find them
    std::vector<Descriptor> copies;
    for (int file = 0; file < kCopiesFrom; ++file) {
      sockaddr_un peer{};
      socklen_t size = sizeof(peer);
      if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.sun_family != AF_UNIX) continue;
      if (std::string_view(peer.sun_path + 1, 5) != "tarn-") continue;
      const int copy = fcntl(file, F_DUPFD_CLOEXEC, kCopiesFrom);
      if (copy >= 0) copies.emplace_back(copy);
    }
    return copies;
  }
  static std::size_t OpenFiles() {
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) ++files;
    return files;
  }
};

TEST_F(ShmTransportTest, TransportsOfOneHostShareMemory) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
  EXPECT_TRUE(Share(client.get(), server.get()));
}

TEST_F(ShmTransportTest, TheLogNamesWorkersAndShards) {
  const std::string path = std::filesystem::temp_directory_path() / ("tarn-shm-log-" + std::to_string(::getpid()));
  ASSERT_TRUE(InitLog({.role = "test", .path = path}));
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(ShardPeer(ShardId(5)), *server->Bind("tcp://127.0.0.1:*")));
  ASSERT_TRUE(Share(client.get(), server.get()));
  Message hello = NumberedTick(1);
  hello.sender = {Role::kWorker, 3, Incarnation(7)};
  client->Send(ShardPeer(ShardId(5)), hello);
  EXPECT_EQ(Move(client.get(), server.get(), 1).size(), 1u);
  FlushLog();
  const std::string text = ReadFile(path, 1 << 20).value_or("");
  std::filesystem::remove(path);
  ASSERT_TRUE(InitLog({.role = "test", .level = LogLevel::kError}));
  EXPECT_NE(text.find("shared memory with worker 3, two rings of "), std::string::npos) << text;
  EXPECT_NE(text.find("shared memory with shard 5, two rings of "), std::string::npos) << text;
  EXPECT_EQ(text.find("429496"), std::string::npos) << text;
}

TEST_F(ShmTransportTest, APeerThatDoesNotWantSharedMemoryGetsNone) {
  for (const bool servers : {false, true}) {
    auto server = Make({.shm = !servers});
    auto client = Make({.shm = servers});
    ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
    EXPECT_FALSE(Share(client.get(), server.get(), 50));
    client->Send(kServer, NumberedTick(1));
    EXPECT_EQ(Move(client.get(), server.get(), 1).size(), 1u);
  }
}

TEST_F(ShmTransportTest, TheSchedulerSharesNoMemory) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kSchedulerPeer, *server->Bind("tcp://127.0.0.1:*")));
  EXPECT_FALSE(Share(client.get(), server.get(), 50));
}

// Messages of all sizes are sent in both directions during the change; many are larger than the ring.
TEST_F(ShmTransportTest, NothingIsLostOrOvertakenAtTheChange) {
  auto server = Make({.shm_ring_bytes = 256 << 10});
  auto client = Make({.lend_payloads = true, .shm_ring_bytes = 256 << 10});
  ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
  constexpr std::uint64_t kMessages = 2'000;
  std::uint64_t next = 0, at_server = 0, at_client = 0;
  std::vector<Received> got;
  bool before = false, shared = false;
  for (int turn = 0; turn < 200'000 && at_client < kMessages; ++turn) {
    if (next < kMessages && next < at_client + 40) {
      client->Send(kServer, Piece(next, 4096 * (1 + next * 7919 % 60)));
      ++next;
    }
    got.clear();
    server->Receive(&got, 16, 0);
    for (const Received& r : got) {
      ASSERT_EQ(std::get<PullReply>(r.message.body).request.value, at_server++);
      server->Send(r.from, r.message);
    }
    got.clear();
    client->Receive(&got, 16, 0);
    for (const Received& r : got) {
      const std::uint64_t n = std::get<PullReply>(r.message.body).request.value;
      ASSERT_EQ(n, at_client++);
      const Buffer& values = ValuesOf(r);
      ASSERT_EQ(values.size(), 4096 * (1 + n * 7919 % 60));
      ASSERT_EQ(static_cast<std::uint8_t>(values.data()[values.size() - 1]), n & 0xff);
    }
    const bool now = client->counters().shm_peers == 1;
    before |= !now && at_client > 0;
    shared |= now && at_client < kMessages;
  }
  EXPECT_EQ(at_client, kMessages);
  EXPECT_TRUE(shared);
  EXPECT_EQ(client->counters().dropped_backlog + server->counters().dropped_backlog, 0u);
}

// Channels that are never empty let each other have their turn, and also peers on the network.
TEST_F(ShmTransportTest, BusyChannelsDoNotStarveOthers) {
  constexpr std::size_t kClients = 9, kMax = 64;
  auto server = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  std::vector<std::unique_ptr<ZmqTransport>> clients;
  std::vector<Received> got;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(Make());
    ASSERT_TRUE(clients.back()->Connect(kServer, endpoint));
    for (int turn = 0; turn < 5'000 && server->counters().shm_peers <= i; ++turn) {
      clients.back()->Receive(&got, 16, 1'000);
      server->Receive(&got, 16, 1'000);
    }
    for (int turn = 0; turn < 5'000 && clients.back()->counters().shm_peers == 0; ++turn) {
      clients.back()->Receive(&got, 16, 1'000);
      server->Receive(&got, 16, 1'000);
    }
  }
  ASSERT_EQ(server->counters().shm_peers, kClients);
  auto stranger = Make({.shm = false});
  ASSERT_TRUE(stranger->Connect(kServer, endpoint));
  constexpr std::uint64_t kStrangers = 1'000'000;
  std::map<std::uint64_t, std::size_t> heard;  // by the client's number, with which its ticks begin
  bool stranger_heard = false;
  for (int turn = 0; turn < 3'000; ++turn) {
    for (std::size_t i = 0; i < kClients; ++i) {
      std::vector<Received> none;
      clients[i]->Receive(&none, 1, 0);
      if (clients[i]->counters().backlog_bytes == 0)
        for (int n = 0; n < 64; ++n) clients[i]->Send(kServer, NumberedTick(i + 1));
    }
    if (turn % 100 == 0) stranger->Send(kServer, NumberedTick(kStrangers));
    stranger->Receive(&got, 0, 0);
    got.clear();
    server->Receive(&got, kMax, 0);
    for (const Received& r : got) {
      ++heard[TickOf(r)];
      stranger_heard |= TickOf(r) == kStrangers;
    }
  }
  EXPECT_TRUE(stranger_heard);
  for (std::size_t i = 0; i < kClients; ++i) EXPECT_GT(heard[i + 1], 1'000u) << "client " << i;
}

TEST_F(ShmTransportTest, PeersBeyondTheLimitShareNoMemory) {
  auto server = Make({.shm_ring_bytes = 64 << 10});
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  std::vector<std::unique_ptr<ZmqTransport>> clients;
  for (std::size_t i = 0; i <= limits::kShmLanesMax; ++i) {
    clients.push_back(Make());
    ASSERT_TRUE(clients.back()->Connect(kServer, endpoint));
    std::vector<Received> got;
    for (int turn = 0; turn < 5'000 && server->counters().shm_peers < std::min(i + 1, limits::kShmLanesMax); ++turn) {
      clients.back()->Receive(&got, 16, 1'000);
      server->Receive(&got, 16, 1'000);
    }
  }
  EXPECT_EQ(server->counters().shm_peers, limits::kShmLanesMax);
  clients.back()->Send(kServer, NumberedTick(5));
  EXPECT_EQ(Move(clients.back().get(), server.get(), 1).size(), 1u);
}

TEST_F(ShmTransportTest, AMessageInSharedMemoryWakesASleeper) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
  ASSERT_TRUE(Share(client.get(), server.get()));
  std::thread echo([&] {
    for (int n = 0; n < 200;) {
      std::vector<Received> got;
      server->Receive(&got, 16, 10 * kSecondUs);
      ASSERT_FALSE(got.empty());
      for (const Received& r : got) server->Send(r.from, r.message);
      n += int(got.size());
    }
  });
  for (std::uint64_t n = 0; n < 200; ++n) {
    client->SetBusyPoll(n < 100 ? 0 : 100);
    client->Send(kServer, NumberedTick(n));
    const auto got = ReceiveN(client.get(), 1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(TickOf(got[0]), n);
  }
  echo.join();
}

TEST_F(ShmTransportTest, WakeEndsASleepAndAPoll) {
  auto transport = Make();
  for (const std::int64_t look : {0, 1'000'000}) {
    transport->SetBusyPoll(look);
    for (int i = 0; i < 50; ++i) {
      std::thread waker([&] { transport->Wake(); });
      std::vector<Received> got;
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(transport->Receive(&got, 16, 60 * kSecondUs), 0u);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
      waker.join();
    }
  }
}

// A process that pushes to a server until it is killed. It must be made while no other thread runs: another thread
// might hold a lock at the fork, which would never be released in the child.
class EndlessClient {
 public:
  EndlessClient() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) Run(ends[0]);
    close(ends[0]);
    tell_ = ends[1];
  }
  ~EndlessClient() {
    Kill();
    close(tell_);
  }
  EndlessClient(const EndlessClient&) = delete;
  EndlessClient& operator=(const EndlessClient&) = delete;

  void Start(const std::string& endpoint) {
    EXPECT_EQ(write(tell_, endpoint.data(), endpoint.size()), static_cast<ssize_t>(endpoint.size()));
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  [[noreturn]] static void Run(int told) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::array<char, 256> endpoint{};
    if (read(told, endpoint.data(), endpoint.size() - 1) <= 0) _exit(1);
    ZmqContext context;
    ZmqTransport client(&context, {.insecure = true});
    if (!client.Connect(kServer, endpoint.data())) _exit(1);
    for (std::uint64_t n = 0;; ++n) {
      client.Send(kServer, Piece(n, 102'400));
      std::vector<Received> none;
      client.Receive(&none, 16, 100);
    }
  }

  pid_t pid_ = 0;
  int tell_ = -1;
};

// If a process is killed while it sends, the server keeps no file open, and the messages sent before arrive.
TEST_F(ShmTransportTest, AKilledPeerIsForgotten) {
  std::array<EndlessClient, 3> clients;
  auto server = Make();
  const auto endpoint = server->Bind("tcp://127.0.0.1:*");
  ASSERT_TRUE(endpoint);
  std::vector<Received> got;
  server->Receive(&got, 16, 1'000);
  const std::size_t files = OpenFiles() + 1;  // the first channel opens an epoll for all
  for (EndlessClient& client : clients) {
    client.Start(*endpoint);
    for (int i = 0; i < 30'000 && server->counters().shm_peers == 0; ++i) server->Receive(&got, 16, 1'000);
    ASSERT_EQ(server->counters().shm_peers, 1u);
    client.Kill();
    for (int i = 0; i < 30'000 && server->counters().shm_peers != 0; ++i) server->Receive(&got, 16, 1'000);
    EXPECT_EQ(server->counters().shm_peers, 0u);
    got.clear();
    for (int i = 0; i < 5'000 && OpenFiles() > files; ++i) server->Receive(&got, 16, 1'000);
    EXPECT_EQ(OpenFiles(), files);
  }
}

// As a forked process does (a loader of data), duplicates keep the sockets of the client's channels open. The client
// then sleeps nevertheless when the server has ended.
TEST_F(ShmTransportTest, AnEndedPeerDoesNotKeepTheLoopAwake) {
  auto server = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
  ASSERT_TRUE(Share(client.get(), server.get()));
  const std::vector<Descriptor> copies = CopiesOfClientSockets();
  ASSERT_FALSE(copies.empty());
  server.reset();
  std::vector<Received> none;
  for (int i = 0; i < 2'000 && client->counters().shm_peers != 0; ++i) client->Receive(&none, 16, 1'000);
  ASSERT_EQ(client->counters().shm_peers, 0u);
  const double cpu_before = ThreadCpuSeconds();
  client->Receive(&none, 16, 500'000);
  EXPECT_LT(ThreadCpuSeconds() - cpu_before, 0.25);
}

// Messages that wait for a peer that has ended do not delay the end of a transport.
TEST_F(ShmTransportTest, ATransportEndsWithoutItsPeer) {
  auto server = Make();
  ZmqTransportOptions patient{.insecure = true};
  patient.linger_ms = 3'600'000;
  auto client = std::make_unique<ZmqTransport>(&context_, patient);
  ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
  ASSERT_TRUE(Share(client.get(), server.get()));
  for (std::uint64_t n = 0; n < 3; ++n) {  // both have sent and received Switch
    client->Send(kServer, NumberedTick(n));
    ASSERT_EQ(Move(client.get(), server.get(), 1).size(), 1u);
    std::vector<Received> none;
    client->Receive(&none, 16, 1'000);
  }
  for (std::uint64_t n = 0; n < 30; ++n) client->Send(kServer, Piece(n, 102'400));
  ASSERT_GT(client->counters().backlog_bytes, 0u);
  server.reset();
  client.reset();  // does not wait for an hour
}

// A copy of its socket in a forked process does not hide the end of a channel from the other side.
TEST_F(ShmTransportTest, APeerThatConnectsElsewhereEndsItsChannel) {
  auto server = Make(), other = Make();
  auto client = Make();
  ASSERT_TRUE(client->Connect(kServer, *server->Bind("tcp://127.0.0.1:*")));
  ASSERT_TRUE(Share(client.get(), server.get()));
  const std::vector<Descriptor> copies = CopiesOfClientSockets();
  ASSERT_FALSE(copies.empty());
  ASSERT_TRUE(client->Connect(kServer, *other->Bind("tcp://127.0.0.1:*")));
  std::vector<Received> none;
  for (int i = 0; i < 2'000 && server->counters().shm_peers != 0; ++i) server->Receive(&none, 16, 1'000);
  EXPECT_EQ(server->counters().shm_peers, 0u);
}

// The server restarts at the same address: the client reconnects over the network, and they share memory again.
TEST_F(ShmTransportTest, AClientSharesMemoryAgainAfterTheServersRestart) {
  auto server = Make();
  const std::string endpoint = *server->Bind("tcp://127.0.0.1:*");
  auto client = Make();
  ASSERT_TRUE(client->Connect(kServer, endpoint));
  ASSERT_TRUE(Share(client.get(), server.get()));
  server.reset();
  std::vector<Received> none;
  for (int i = 0; i < 2'000 && client->counters().shm_peers != 0; ++i) client->Receive(&none, 16, 1'000);
  EXPECT_EQ(client->counters().shm_peers, 0u);
  server = Make();
  for (int i = 0; i < 500 && !server->Bind(endpoint); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(Share(client.get(), server.get(), 20'000));
  client->Send(kServer, NumberedTick(5));
  EXPECT_EQ(Move(client.get(), server.get(), 1).size(), 1u);
}

// A server that follows the handshake of shared memory, and writes any bytes into the memory.
class StrangeServer {
 public:
  explicit StrangeServer(std::size_t ring_bytes)
      : context_(zmq_ctx_new()),
        router_(zmq_socket(context_, ZMQ_ROUTER)),
        listener_(*ShmListener::Open(ring_bytes, wake_.get())) {
    const int none = 0;
    zmq_setsockopt(router_, ZMQ_LINGER, &none, sizeof(none));
    EXPECT_EQ(zmq_bind(router_, "tcp://127.0.0.1:*"), 0);
  }
  ~StrangeServer() {
    zmq_close(router_);
    zmq_ctx_term(context_);
  }
  std::string endpoint() const {
    std::array<char, 256> text{};
    std::size_t size = text.size();
    zmq_getsockopt(router_, ZMQ_LAST_ENDPOINT, text.data(), &size);
    return text.data();
  }
  // Performs its next step of the handshake. Returns whether it is complete.
  bool Turn() {
    std::array<char, 256> identity{}, word{};
    const int identity_bytes = zmq_recv(router_, identity.data(), identity.size(), ZMQ_DONTWAIT);
    const int bytes = identity_bytes < 0 ? -1 : zmq_recv(router_, word.data(), word.size(), ZMQ_DONTWAIT);
    if (bytes >= 0) Answer({identity.data(), static_cast<std::size_t>(identity_bytes)}, word.data(), bytes);
    std::vector<pollfd> files;
    listener_.AddFiles(&files);
    if (poll(files.data(), files.size(), 0) > 0)
      listener_.Take(1, [&](Peer, ShmChannel channel) { channel_.emplace(std::move(channel)); });
    return through_ && channel_;
  }
  ShmChannel& channel() { return *channel_; }

 private:
  void Answer(const std::string& identity, const char* bytes, int size) {
    const auto word = DecodeShmHandshake({reinterpret_cast<const std::byte*>(bytes), static_cast<std::size_t>(size)});
    if (!word || !*word) return;
    ShmHandshake answer{.kind = ShmHandshake::Kind::kSwitch, .socket = {}, .ticket = {}};
    if ((*word)->kind == ShmHandshake::Kind::kRequest)
      answer = {.kind = ShmHandshake::Kind::kOffer, .socket = listener_.name(), .ticket = listener_.TicketFor(Peer(1))};
    through_ = answer.kind == ShmHandshake::Kind::kSwitch;
    const Buffer frame = EncodeShmHandshake(answer);
    zmq_send(router_, identity.data(), identity.size(), ZMQ_SNDMORE);
    zmq_send(router_, frame.data(), frame.size(), 0);
  }

  void* context_;
  void* router_;
  Descriptor wake_ = NewWakeFile();
  ShmListener listener_;
  std::optional<ShmChannel> channel_;
  bool through_ = false;
};

// A payload that was lent for a refused message is released before the client sleeps, so that it sees the next message.
TEST_F(ShmTransportTest, ARefusedMessageReleasesItsLentPayloads) {
  StrangeServer server(256 << 10);
  auto client = Make({.lend_payloads = true});
  ASSERT_TRUE(client->Connect(kServer, server.endpoint()));
  std::vector<Received> got;
  for (int i = 0; i < 2'000 && !(server.Turn() && client->counters().shm_peers == 1); ++i)
    client->Receive(&got, 16, 1'000);
  ASSERT_TRUE(server.Turn());
  for (int i = 0; i < 20; ++i) client->Receive(&got, 16, 1'000);  // the last message of the handshake
  ASSERT_TRUE(got.empty());
  Frames bad = *Encode(Piece(1, 64 << 10));
  bad[0] = Buffer::Copy(bad[0].data(), bad[0].size() - 1);
  ASSERT_TRUE(server.channel().Send(bad, limits::kBacklogBytesMax));
  ASSERT_TRUE(server.channel().Send(*Encode(NumberedTick(2)), limits::kBacklogBytesMax));
  EXPECT_EQ(client->Receive(&got, 16, 5 * kSecondUs), 1u);
  EXPECT_EQ(client->counters().refused_malformed, 1u);
}

}  // namespace
}  // namespace tarn::net

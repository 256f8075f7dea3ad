// Shows that pulls use the lanes after the first, in turn, and that all other messages use the first, in order; that an
// answer uses the lane of its request; that a full lane does not block the others, within one bound for the peer; and
// that all lanes reconnect after a restart.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "net/backlog.h"
#include "net/bundles.h"
#include "tests/unit/net/zmq/transport_fixture.h"

namespace tarn::net {
namespace {

const Peer kShard = ShardPeer(ShardId(0));

// A pull of a range, which is small, or of `keys` keys.
Message NumberedPull(std::uint64_t n, std::uint32_t keys = 0) {
  KeyList list{.codec = keys == 0 ? KeyCodec::kRange : KeyCodec::kRaw, .count = std::max(1u, keys)};
  list.sections = {{PartitionId(0), list.count, Sequence(0)}};
  if (keys != 0) list.frame = Buffer::Allocate(keys * sizeof(Key));
  if (keys != 0) std::memset(list.frame.data(), 1, list.frame.size());
  Message message;
  message.body = Pull{.request = RequestId(n), .tables = {{.table = TableId(1), .keys = std::move(list)}}};
  return message;
}

bool IsPull(const Received& r) { return std::holds_alternative<Pull>(r.message.body); }
std::uint64_t RequestOf(const Received& r) { return std::get<Pull>(r.message.body).request.value; }

class LanesTest : public TransportTest {
 protected:
  void Begin(std::uint32_t lanes, ZmqTransportOptions options = {}) {
    options.shm = false;
    server_ = Make(options);
    options.lanes = lanes;
    client_ = Make(options);
    endpoint_ = *server_->Bind("tcp://127.0.0.1:*");
    ASSERT_TRUE(client_->Connect(kShard, endpoint_));
  }
  // Sends pulls, one at a time, until pulls have arrived by `lanes` lanes and none is missing. Empty: they did not.
  std::vector<Received> ReceiveFrom(std::size_t lanes, std::uint64_t turns = 5'000) {
    std::vector<Received> got, none;
    std::set<Peer> peers;
    std::uint64_t sent = 0;
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      if (peers.size() < lanes) client_->Send(kShard, NumberedPull(sent++));
      client_->Receive(&none, 16, 0);
      server_->Receive(&got, 64, 1'000);
      for (const Received& r : got) peers.insert(r.from);
      if (peers.size() == lanes && got.size() >= sent) return got;
    }
    return {};
  }

  std::unique_ptr<ZmqTransport> server_, client_;
  std::string endpoint_;
};

TEST_F(LanesTest, PullsUseTheOtherLanesInTurn) {
  Begin(4);
  ASSERT_FALSE(ReceiveFrom(3).empty());
  constexpr std::uint64_t kPulls = 300;
  std::vector<Outgoing> outgoing;
  for (std::uint64_t n = 0; n < kPulls; ++n) {
    outgoing.push_back({kShard, NumberedPull(10'000 + n, n % 3 == 0 ? 4'096 : 0)});
    outgoing.push_back({kShard, n % 5 == 0 ? Piece(n, 64 << 10) : NumberedTick(n)});
  }
  client_->Send(outgoing);
  std::map<Peer, std::vector<std::uint64_t>> pulls;
  std::set<Peer> others;
  std::uint64_t next = 0;
  for (const Received& r : Move(client_.get(), server_.get(), 2 * kPulls)) {
    if (IsPull(r) && RequestOf(r) >= 10'000) {
      pulls[r.from].push_back(RequestOf(r));
    } else if (!IsPull(r)) {
      others.insert(r.from);
      const auto* piece = std::get_if<PullReply>(&r.message.body);
      EXPECT_EQ(piece != nullptr ? piece->request.value : TickOf(r), next++);  // in order
    }
  }
  EXPECT_EQ(next, kPulls);
  ASSERT_EQ(pulls.size(), 3u);
  for (const auto& [peer, numbers] : pulls) {
    EXPECT_EQ(numbers.size(), kPulls / 3);
    EXPECT_TRUE(std::ranges::is_sorted(numbers));
  }
  ASSERT_EQ(others.size(), 1u);
  EXPECT_FALSE(pulls.contains(*others.begin()));
  EXPECT_EQ(server_->counters().accepted_peers, 4u);
}

TEST_F(LanesTest, AnswersArriveFromOnePeer) {
  Begin(3);
  std::vector<Received> asked = ReceiveFrom(2);
  ASSERT_FALSE(asked.empty());
  std::set<std::uint64_t> expected;
  for (const Received& r : asked) {
    server_->Send(r.from, Piece(RequestOf(r), 4096));
    expected.insert(RequestOf(r));
  }
  std::set<std::uint64_t> answered;
  for (const Received& r : Move(server_.get(), client_.get(), asked.size())) {
    EXPECT_EQ(r.from, kShard);
    answered.insert(std::get<PullReply>(r.message.body).request.value);
  }
  EXPECT_EQ(answered, expected);
}

TEST_F(LanesTest, OneLaneKeepsAllMessagesInOrderAndTheSchedulerHasOne) {
  for (const bool scheduler : {false, true}) {
    Begin(scheduler ? 3 : 1);
    const Peer to = scheduler ? kSchedulerPeer : kShard;
    auto server = Make({.shm = false});
    ASSERT_TRUE(client_->Connect(to, *server->Bind("tcp://127.0.0.1:*")));
    for (std::uint64_t n = 0; n < 50; ++n) client_->Send(to, n % 2 == 0 ? NumberedPull(n) : NumberedTick(n));
    const std::vector<Received> got = Move(client_.get(), server.get(), 50);
    ASSERT_EQ(got.size(), 50u);
    for (std::uint64_t n = 0; n < 50; ++n) EXPECT_EQ(IsPull(got[n]) ? RequestOf(got[n]) : TickOf(got[n]), n);
    EXPECT_EQ(server->counters().accepted_peers, 1u);
  }
}

TEST_F(LanesTest, SetLanesAppliesToPeersConnectedLater) {
  Begin(1);
  client_->SetLanes(3);
  ASSERT_TRUE(client_->Connect(kShard, endpoint_));  // the endpoint that it already has
  EXPECT_TRUE(ReceiveFrom(2, 100).empty());
  auto server = Make({.shm = false});
  ASSERT_TRUE(client_->Connect(kShard, *server->Bind("tcp://127.0.0.1:*")));
  server_ = std::move(server);
  EXPECT_FALSE(ReceiveFrom(2).empty());
}

// The first lane is full and has a backlog up to the bound, while pulls are still sent. Then their lanes are full too:
// the bound is that of all lanes together, and kept messages arrive in order for each lane.
TEST_F(LanesTest, AFullLaneBlocksNoOther) {
  constexpr std::size_t kBound = std::size_t{4} << 20;
  Begin(3, {.high_water_mark = 4, .backlog_bytes_max = kBound});
  ASSERT_FALSE(ReceiveFrom(2).empty());
  client_->Send(kShard, NumberedTick(0));
  ASSERT_EQ(Move(client_.get(), server_.get(), 1).size(), 1u);
  constexpr std::uint64_t kPieces = 300;
  for (std::uint64_t n = 0; n < kPieces; ++n) client_->Send(kShard, Piece(n, 512 << 10));
  const TransportCounters full = client_->counters();
  EXPECT_GT(full.dropped_backlog, 0u);
  EXPECT_GT(full.backlog_bytes, kBound / 2);
  for (std::uint64_t n = 0; n < 4; ++n) client_->Send(kShard, NumberedPull(n));
  EXPECT_EQ(client_->counters().sent_messages, full.sent_messages + 4);
  EXPECT_EQ(client_->counters().dropped_backlog, full.dropped_backlog);
  constexpr std::uint64_t kPulls = 300;
  for (std::uint64_t n = 4; n < kPulls; ++n) client_->Send(kShard, NumberedPull(n, 64 << 10));
  const TransportCounters after = client_->counters();
  EXPECT_GT(after.dropped_backlog, full.dropped_backlog);
  EXPECT_LE(after.backlog_bytes, kBound);
  const std::uint64_t kept = kPieces + kPulls - after.dropped_backlog;
  std::map<Peer, std::uint64_t> last;
  const std::vector<Received> got = Move(client_.get(), server_.get(), kept);
  EXPECT_EQ(got.size(), kept);
  for (const Received& r : got) {
    const std::uint64_t n = 1 + (IsPull(r) ? RequestOf(r) : std::get<PullReply>(r.message.body).request.value);
    EXPECT_GT(n, last[r.from]);
    last[r.from] = n;
  }
  EXPECT_EQ(last.size(), 3u);
  EXPECT_EQ(client_->counters().backlog_bytes, 0u);
}

TEST_F(LanesTest, AllLanesReconnectAfterARestart) {
  Begin(3);
  ASSERT_FALSE(ReceiveFrom(2).empty());
  server_.reset();
  std::vector<Received> none;
  client_->Receive(&none, 1, 50'000);
  for (std::uint64_t n = 0; n < 10; ++n) client_->Send(kShard, NumberedPull(n));
  server_ = Make({.shm = false});
  for (int i = 0; i < 500 && !server_->Bind(endpoint_); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(ReceiveFrom(2).empty());
  client_->Send(kShard, NumberedTick(7));
  std::vector<Received> got;
  const auto told = [&] { return std::ranges::any_of(got, [](const Received& r) { return !IsPull(r); }); };
  for (int i = 0; i < 2'000 && !told(); ++i) {
    client_->Receive(&none, 1, 1'000);
    server_->Receive(&got, 16, 1'000);
  }
  EXPECT_TRUE(told());
  EXPECT_EQ(server_->counters().accepted_peers, 3u);
}

TEST_F(LanesTest, SharedMemoryReplacesAllLanes) {
  auto server = Make();
  auto client = Make({.lanes = 3});
  ASSERT_TRUE(client->Connect(kShard, *server->Bind("tcp://127.0.0.1:*")));
  std::vector<Received> none;
  const auto shared = [&] { return client->counters().shm_peers == 1 && server->counters().shm_peers == 1; };
  for (int i = 0; i < 5'000 && !shared(); ++i) {
    client->Receive(&none, 16, 1'000);
    server->Receive(&none, 16, 1'000);
  }
  ASSERT_TRUE(shared());
  for (std::uint64_t n = 0; n < 50; ++n) client->Send(kShard, n % 2 == 0 ? NumberedPull(n) : NumberedTick(n));
  const std::vector<Received> got = Move(client.get(), server.get(), 50);
  ASSERT_EQ(got.size(), 50u);
  for (std::uint64_t n = 0; n < 50; ++n) {
    EXPECT_EQ(IsPull(got[n]) ? RequestOf(got[n]) : TickOf(got[n]), n);
    EXPECT_EQ(got[n].from, got[0].from);
  }
}

TEST(LanesOfBundles, EachHasItsOwn) {
  Bundles bundles;
  Encoder encoder;
  std::map<LaneId, std::size_t> messages;
  const auto send = [&](const LaneId& to, const auto& what) { messages[to] += MessagesIn(what); };
  for (std::uint64_t n = 0; n < 9; ++n) {
    const Message message = NumberedPull(n);
    ASSERT_TRUE(encoder.Begin(message));
    bundles.Add({kShard, static_cast<std::uint32_t>(n % 3)}, encoder, send);
  }
  EXPECT_TRUE(messages.empty());
  bundles.Flush(send);
  EXPECT_EQ(messages, (std::map<LaneId, std::size_t>{{{kShard, 0}, 3}, {{kShard, 1}, 3}, {{kShard, 2}, 3}}));
}

TEST(LanesOfABacklog, ShareThePeersBound) {
  const Frames frames = *Encode(NumberedTick(1));
  const std::size_t bytes = BytesOf(frames);
  Backlog backlog(3 * bytes);
  const LaneId first(Peer(1), 0), second(Peer(1), 1), other(Peer(2), 0);
  EXPECT_TRUE(backlog.Push(first, frames));
  EXPECT_TRUE(backlog.Push(second, frames));
  EXPECT_TRUE(backlog.Push(second, frames));
  EXPECT_FALSE(backlog.Push(first, frames));
  EXPECT_FALSE(backlog.Push(LaneId(Peer(1), 2), frames));
  EXPECT_FALSE(backlog.Has(LaneId(Peer(1), 2)));
  EXPECT_TRUE(backlog.Push(other, frames));
  EXPECT_EQ(backlog.bytes(), 4 * bytes);
  std::map<LaneId, int> sent;
  backlog.Flush([&](const LaneId& lane, const Frames&) { return lane != first && ++sent[lane] > 0; });
  EXPECT_EQ(sent, (std::map<LaneId, int>{{second, 2}, {other, 1}}));
  EXPECT_TRUE(backlog.Has(first));
  EXPECT_FALSE(backlog.Has(second));
  EXPECT_TRUE(backlog.Push(second, frames));
  EXPECT_EQ(backlog.Drop(Peer(1)), 2u);
  EXPECT_TRUE(backlog.empty());
  EXPECT_EQ(backlog.bytes(), 0u);
}

}  // namespace
}  // namespace tarn::net

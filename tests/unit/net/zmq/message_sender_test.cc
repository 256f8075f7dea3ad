// Shows that small messages wait for Flush and are sent together, that pulls use the lanes after the first, and that
// messages which cannot be encoded or kept are counted.
#include "net/zmq/message_sender.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "core/limits.h"
#include "net/frame.h"
#include "net/shm_peers.h"
#include "tests/unit/net/zmq/messages.h"
#include "tests/unit/net/zmq/sockets_fixture.h"

namespace tarn::net {
namespace {

const Peer kShard = ShardPeer(ShardId(0));

class MessageSenderTest : public SocketsTest {
 protected:
  static constexpr std::size_t kBytesMax = 1 << 20;

  TransportCounters Counters() const {
    TransportCounters counters;
    sockets_.AddTo(&counters);
    sender_.AddTo(&counters);
    return counters;
  }

  ShmPeers shm_{{}, [](Peer, const ShmHandshake&) { return false; }};
  SocketSender sockets_{&router_, &links_, kBytesMax};
  MessageSender sender_{&links_, &shm_, &sockets_, kBytesMax};
};

TEST_F(MessageSenderTest, SmallMessagesAreSentTogetherAndLargeOnesAfterThem) {
  Connect(kShard);
  sender_.Add(kShard, NumberedTick(1));
  sender_.Add(kShard, NumberedTick(2));
  EXPECT_TRUE(TakeFromRouter().empty());
  sender_.Add(kShard, Piece(3, 128 << 10));
  sender_.Add(kShard, NumberedTick(4));
  sender_.Flush();
  const auto messages = TakeFromRouter();
  ASSERT_EQ(messages.size(), 3u);
  const auto frame = [](const std::string& text) {
    return FrameView{reinterpret_cast<const std::byte*>(text.data()), text.size()};
  };
  EXPECT_EQ(MessagesIn(frame(messages[0].at(0))), 2u);
  EXPECT_EQ(messages[1].size(), 3u);
  EXPECT_EQ(MessagesIn(frame(messages[2].at(0))), 1u);
  EXPECT_EQ(Counters().sent_messages, 4u);
}

TEST_F(MessageSenderTest, PullsUseTheLanesAfterTheFirst) {
  Connect(kShard, 3);
  const KeyList keys{.codec = KeyCodec::kRange, .count = 1, .sections = {{PartitionId(0), 1, Sequence(0)}}};
  Message message;
  message.body = Pull{.request = RequestId(1), .tables = {{.table = TableId(1), .keys = keys}}};
  std::vector<Peer> senders;
  for (int i = 0; i < 4; ++i) {
    sender_.Add(kShard, i == 0 ? NumberedTick(0) : message);
    sender_.Flush();
    ASSERT_EQ(TakeFromRouter().size(), 1u);
    senders.push_back(last_sender_);
  }
  EXPECT_EQ(router_.peers(), 3u);
  EXPECT_NE(senders[1], senders[0]);
  EXPECT_NE(senders[2], senders[0]);
  EXPECT_NE(senders[2], senders[1]);
  EXPECT_EQ(senders[3], senders[1]);
}

TEST_F(MessageSenderTest, CountsDroppedMessages) {
  Connect(kShard);
  Message bad;
  bad.body = CreateTable{};
  std::get<CreateTable>(bad.body).spec.name = std::string(limits::kNameBytesMax + 1, 'x');
  sender_.Add(kShard, bad);
  sender_.Flush();
  EXPECT_TRUE(TakeFromRouter().empty());
  EXPECT_EQ(Counters().dropped_unencodable, 1u);

  constexpr std::uint64_t kPieces = 30;
  for (std::uint64_t n = 0; n < kPieces; ++n) sender_.Add(kShard, Piece(n, 128 << 10));
  const TransportCounters full = Counters();
  EXPECT_GT(full.dropped_backlog, 0u);
  EXPECT_LE(sockets_.backlog().bytes(), kBytesMax);
  for (int i = 0; i < 1'000 && !sockets_.backlog().empty(); ++i) {
    TakeFromRouter();
    sockets_.Flush();
    // A send checks once a millisecond whether there is room again.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(Counters().sent_messages + full.dropped_backlog, kPieces);
}

}  // namespace
}  // namespace tarn::net

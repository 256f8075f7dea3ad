// Shows that each kind of worker message reaches its handler, and that unknown senders and unexpected messages are
// refused.
#include "server/shard/worker_messages.h"

#include <gtest/gtest.h>

#include "tests/unit/server/shard/shard_parts_fixture.h"

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1};
constexpr Key kKey = 7;

class WorkerMessagesTest : public PartsTest {
 protected:
  WorkerMessagesTest() {
    const TableSpec spec = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
    EXPECT_TRUE(parts_->view.Adopt(ViewOf(1, {LiveWorker(0, 10)}, {spec})));
    partition_ = PartitionOf(Positioner(spec, TableSalt(kJobSeed, spec.name))(kKey), kBits);
  }
  Message From(Body body) const {
    Message message;
    message.job = kJob;
    message.sender = {Role::kWorker, 0, Incarnation(10)};
    message.epoch = Epoch(1);
    message.body = std::move(body);
    return message;
  }
  KeyList Keys(std::uint64_t sequence) const {
    return {KeyCodec::kRaw, 0, 1, {{partition_, 1, Sequence(sequence)}}, 0, Buffer::Copy(&kKey, sizeof kKey)};
  }
  Message PushOf(std::uint64_t sequence) const {
    PushPart part{.table = kTable, .keys = Keys(sequence)};
    part.values = Buffer::CopyOf(std::span<const float>(std::vector<float>{1, 1}));
    return From(Push{RequestId(sequence), Clock(0), {part}});
  }
  Message PullOf(std::uint64_t request, std::uint64_t sequence) const {
    const PullPart part{.table = kTable, .keys = Keys(sequence)};
    return From(Pull{RequestId(request), Clock(0), {part}});
  }
  void Deliver(Message message) { parts_->messages.OnMessage(kPeer, std::move(message)); }
  PartitionId partition_;
};

TEST_F(WorkerMessagesTest, APullThatWaitsForAPushIsAnsweredAfterIt) {
  Deliver(PullOf(9, 1));
  EXPECT_TRUE(out_.empty());
  Deliver(PushOf(1));
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PushAck>(out_[0].message.body));
  EXPECT_TRUE(std::holds_alternative<PullReply>(out_[1].message.body));
  EXPECT_EQ(PartOf<PullReply>(out_[1].message).values.as<float>()[0], -1.0f);
}

TEST_F(WorkerMessagesTest, ATickIsAcknowledgedAndMovesTheClocks) {
  Deliver(From(tarn::Tick{Clock(2), {}, {}}));
  EXPECT_EQ(Take<TickAck>().at(0).clock, Clock(2));
  EXPECT_EQ(ticks_, 1);
  Deliver(From(tarn::Tick{Clock(1), {}, {}}));
  EXPECT_EQ(Take<TickAck>().size(), 1u) << "an old one, acknowledged again";
  EXPECT_EQ(ticks_, 1);
  EXPECT_EQ(parts_->clocks.minimum(), Clock(2));
  Deliver(From(tarn::Tick{Clock(3 + limits::kClocksAheadMax), {}, {}}));
  EXPECT_EQ(Take<ErrorReply>().at(0).code, ErrorCode::kInvalidArgument);
}

TEST_F(WorkerMessagesTest, UnknownSendersAndMessagesThatAreNotForAShardAreRefused) {
  Message stranger = PushOf(1);
  stranger.sender.incarnation = Incarnation(99);
  Deliver(stranger);
  EXPECT_EQ(Take<ErrorReply>().at(0).code, ErrorCode::kUnavailable);
  Deliver(From(Barrier{}));
  EXPECT_EQ(counters_.refused_other, 2u);
  Deliver(From(Prefetch{kTable, Keys(0)}));
  EXPECT_TRUE(out_.empty());
}

TEST_F(WorkerMessagesTest, BlobsNeedAStore) {
  Deliver(From(PutBlob{CheckpointId(1), 0, 8}));
  Deliver(From(GetBlob{}));
  EXPECT_EQ(counters_.refused_other, 2u);
  EXPECT_FALSE(stop_.stopped());
}

}  // namespace
}  // namespace tarn::server

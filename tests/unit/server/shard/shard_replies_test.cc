// Shows that replies not yet sent are bounded, for one client and for all: pulls are served at the limit, refused one
// past it, and served again once replies are sent (rule C7).
#include <thread>

#include "server/shard/reply_budget.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

constexpr std::size_t kReplyBytes = 8;  // one row of two floats
constexpr Peer kOtherLane{kFirstAcceptedPeer + 2};

class ShardRepliesTest : public ShardTest {
 protected:
  void Begin(std::size_t bytes_max, std::size_t peer_bytes_max, ConsistencyMode mode = ConsistencyMode::kAsp,
             ApplyMode apply = ApplyMode::kImmediate) {
    ShardOptions options;
    options.reply_bytes_max = bytes_max;
    options.reply_peer_bytes_max = peer_bytes_max;
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(mode, apply), options);
    out_.clear();
  }
  // Sends a pull of the worker of that rank. Returns the code of the answer; replies count as unsent until Taken().
  ErrorCode PullFrom(std::uint32_t rank, std::uint64_t request, Peer peer = kWorkerPeer) {
    shard_->OnMessage(peer, PullOf(rank, 10 + rank, 5, 0, request), now_, &out_);
    const Outgoing last = std::move(out_.back());
    out_.pop_back();
    EXPECT_EQ(last.to, peer);
    if (const auto* error = std::get_if<ErrorReply>(&last.message.body)) return error->code;
    network_.push_back(PartOf<PullReply>(last.message).values);
    return ErrorCode::kOk;
  }
  std::vector<Buffer> network_;
};

TEST_F(ShardRepliesTest, OneClientIsServedUpToItsLimit) {
  Begin(100 * kReplyBytes, 2 * kReplyBytes);
  EXPECT_EQ(PullFrom(0, 1), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(0, 2), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(0, 3), ErrorCode::kOverloaded);
  EXPECT_EQ(PullFrom(1, 1), ErrorCode::kOk);
  network_.clear();
  EXPECT_EQ(PullFrom(0, 3), ErrorCode::kOk);
}

// A worker with several lanes is several peers: each gets the answers to its pulls, and all share one limit.
TEST_F(ShardRepliesTest, TheLanesOfAWorkerShareItsLimit) {
  Begin(100 * kReplyBytes, 2 * kReplyBytes);
  EXPECT_EQ(PullFrom(0, 1, kWorkerPeer), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(0, 2, kOtherLane), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(0, 3, kOtherLane), ErrorCode::kOverloaded);
  EXPECT_EQ(PullFrom(0, 3, kWorkerPeer), ErrorCode::kOverloaded);
  EXPECT_EQ(PullFrom(1, 1, kWorkerPeer), ErrorCode::kOk);
}

TEST_F(ShardRepliesTest, AllClientsAreServedUpToTheirLimit) {
  Begin(3 * kReplyBytes, 2 * kReplyBytes);
  EXPECT_EQ(PullFrom(0, 1), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(0, 2), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(1, 1), ErrorCode::kOk);
  EXPECT_EQ(PullFrom(1, 2), ErrorCode::kOverloaded);
  network_.erase(network_.begin());
  EXPECT_EQ(PullFrom(1, 2), ErrorCode::kOk);
}

TEST_F(ShardRepliesTest, AParkedPullThatHasNoRoomWhenItsClockOpensIsRefused) {
  Begin(100 * kReplyBytes, kReplyBytes, ConsistencyMode::kBsp, ApplyMode::kAggregated);
  Deliver(PullOf(0, 10, 5, 1, 1));
  Deliver(PullOf(0, 10, 6, 1, 2));
  EXPECT_TRUE(out_.empty());
  Tick(0, 10, 1);
  Tick(1, 11, 1);
  std::size_t replies = 0, refusals = 0;
  for (const Outgoing& outgoing : out_) {
    replies += std::holds_alternative<PullReply>(outgoing.message.body);
    if (const auto* error = std::get_if<ErrorReply>(&outgoing.message.body)) {
      EXPECT_EQ(error->code, ErrorCode::kOverloaded);
      EXPECT_EQ(error->request, RequestId(2));
      ++refusals;
    }
  }
  EXPECT_EQ(replies, 1u);
  EXPECT_EQ(refusals, 1u);
}

TEST(ReplyBudgetTest, CountsAReplyUntilItsLastOwnerOnAnyThreadReleasesIt) {
  auto budget = std::make_unique<ReplyBudget>(100, 60);
  Buffer first = *budget->Allocate(Incarnation(1), 60);
  EXPECT_EQ(budget->Allocate(Incarnation(1), 1).error().code, ErrorCode::kOverloaded);
  Buffer second = *budget->Allocate(Incarnation(2), 40);
  EXPECT_EQ(budget->Allocate(Incarnation(3), 1).error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(budget->bytes(), 100u);
  const Buffer copy = second;
  second = {};
  EXPECT_EQ(budget->bytes(), 100u);
  std::thread([taken = std::move(first)]() mutable { taken = {}; }).join();
  EXPECT_EQ(budget->bytes(), 40u);
  budget.reset();  // before the last reply
}

TEST(ReplyBudgetTest, WorkersThatHoldNothingAreForgotten) {
  ReplyBudget budget(1 << 20, 1 << 10);
  Buffer kept = *budget.Allocate(Incarnation(1), 1 << 10);
  for (std::uint64_t i = 0; i < 10'000; ++i) (void)*budget.Allocate(Incarnation(10 + i), 1 << 10);
  EXPECT_EQ(budget.bytes(), 1u << 10);
  EXPECT_FALSE(budget.Allocate(Incarnation(1), 1));
}

}  // namespace
}  // namespace tarn::server

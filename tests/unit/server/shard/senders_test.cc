// Shows the checks of rule E3 up to the incarnation: which senders are served, and how the others are answered.
#include "server/shard/senders.h"

#include <gtest/gtest.h>

#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

class SendersTest : public PartTest {
 protected:
  ErrorCode CodeOf(const Message& message) const {
    const auto member = senders_.Check(message);
    return member ? ErrorCode::kOk : member.error().code;
  }
};

TEST_F(SendersTest, ALiveWorkerOfThisJobAndEpochIsServed) {
  const auto member = senders_.Check(From(kSecondWorker, Pull{}));
  ASSERT_TRUE(member);
  EXPECT_EQ((*member)->entry.rank, WorkerRank(1));
}

TEST_F(SendersTest, OtherSendersAreRefused) {
  Message other_job = From(kFirstWorker, Pull{});
  other_job.job = kJob + 1;
  EXPECT_EQ(CodeOf(other_job), ErrorCode::kWrongJob);
  Message from_shard = From(kFirstWorker, Pull{});
  from_shard.sender.role = Role::kShard;
  EXPECT_EQ(CodeOf(from_shard), ErrorCode::kInvalidArgument);
  for (const std::uint64_t epoch : {0, 2}) {
    Message other_epoch = From(kFirstWorker, Pull{});
    other_epoch.epoch = Epoch(epoch);
    EXPECT_EQ(CodeOf(other_epoch), ErrorCode::kStaleEpoch);
  }
  Message unknown = From(kFirstWorker, Pull{});
  unknown.sender = {Role::kWorker, 5, Incarnation(99)};
  EXPECT_EQ(CodeOf(unknown), ErrorCode::kUnavailable);
}

TEST_F(SendersTest, ARefusalNamesTheRequestAndIsCounted) {
  const Peer peer(9);
  senders_.Refuse(peer, Pull{.request = RequestId(3)}, {ErrorCode::kStaleEpoch, "old"});
  senders_.Refuse(peer, Push{.request = RequestId(4)}, {ErrorCode::kFenced, "over"});
  senders_.Refuse(peer, Push{.request = RequestId(5)}, {ErrorCode::kOverloaded, "full"});
  senders_.Refuse(peer, tarn::Tick{}, {ErrorCode::kUnavailable, "not yet"});
  senders_.Refuse(peer, Prefetch{}, {ErrorCode::kUnavailable, "not yet"});
  EXPECT_EQ(counters_.refused_epoch, 1u);
  EXPECT_EQ(counters_.refused_fenced, 1u);
  EXPECT_EQ(counters_.refused_other, 3u);
  std::vector<std::uint64_t> requests;
  for (const ErrorReply& reply : Take<ErrorReply>()) {
    requests.push_back(reply.request.value);
    EXPECT_EQ(reply.epoch, Epoch(1));
  }
  EXPECT_EQ(requests, (std::vector<std::uint64_t>{3, 4, 5, 0})) << "a wish for rows is not answered";
}

}  // namespace
}  // namespace tarn::server

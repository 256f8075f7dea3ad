// Shows rules C3 and C7: a pull is answered at once if its clock is open and its worker's pushes have arrived,
// otherwise once they have; and it is refused if there is no room for it or its reply.
#include "server/shard/pulls.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/server/shard/part_fixture.h"
#include "tests/unit/server/shard/tiered_rows.h"

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1};

class PullsTest : public PartTest {
 protected:
  PullsTest() {
    AddTable(CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
    Open({});
  }
  void Open(const ShardOptions& options) { Open(options, &rows_); }
  void Open(const ShardOptions& options, Store* rows) {
    pulls_.emplace(options, Pulls::Context{.rows = rows,
                                           .clocks = &clocks_,
                                           .policies = &policies_,
                                           .lists = &lists_,
                                           .senders = &senders_,
                                           .step = &step_,
                                           .stop = &stop_,
                                           .counters = &counters_,
                                           .observer = &events_});
  }
  Status OnPull(const Message& message) { return pulls_->OnPull(kPeer, message.sender, std::get<Pull>(message.body)); }
  // Adds table `other` and returns a pull of key 7 of it and of the first table. The reply has padding between their
  // rows.
  Message PullOfTwo(TableSpec other, std::uint64_t clock) {
    other.id = TableId(2);
    other.name = "other";
    other.dim = 3;
    const Message of_first = PullOf(kFirstWorker, 7, clock, 1);
    AddTable(other);
    return Joined<Pull>(PullOf(kFirstWorker, 7, clock, 1), of_first);
  }
  std::optional<Pulls> pulls_;
};

TEST_F(PullsTest, IsAnsweredAtOnceIfItsClockIsOpen) {
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 0, 1)));
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].to, kPeer);
  const PullReply& reply = std::get<PullReply>(out_[0].message.body);
  EXPECT_EQ(reply.request, RequestId(1));
  ASSERT_EQ(reply.tables.size(), 1u);
  EXPECT_EQ(reply.tables[0].count, 1u);
  EXPECT_EQ(reply.tables[0].values.size(), 2 * sizeof(float));
  EXPECT_EQ(events_.served, std::vector<Clock>{Clock(0)});
  EXPECT_EQ(counters_.pulls, 1u);
  EXPECT_EQ(counters_.pulls_parked, 0u);
}

TEST_F(PullsTest, WaitsForTheClockAndThenForItsWorkersPushes) {
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 1, 1)));
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 1, 2, 1)));
  EXPECT_EQ(pulls_->parked(), 2u);
  EXPECT_EQ(counters_.pulls_parked, 2u);
  pulls_->AnswerOpened();
  EXPECT_TRUE(Take<PullReply>().empty());
  Tick(kFirstWorker, 1);
  Tick(kSecondWorker, 1);
  pulls_->AnswerOpened();
  EXPECT_EQ(Take<PullReply>().size(), 1u);
  EXPECT_EQ(pulls_->parked(), 1u);
  rows_.Find(PartitionOfKey(7))->watermarks().Advance(kFirstWorker);
  pulls_->AnswerAfterPush(kSecondWorker);
  EXPECT_TRUE(Take<PullReply>().empty());
  pulls_->AnswerAfterPush(kFirstWorker);
  EXPECT_EQ(Take<PullReply>().size(), 1u);
  EXPECT_EQ(pulls_->parked_bytes(), 0u);
}

TEST_F(PullsTest, ARepetitionReplacesTheParkedPull) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 1, 1)));
  EXPECT_EQ(pulls_->parked(), 1u);
  EXPECT_EQ(counters_.pulls_parked, 1u);
}

TEST_F(PullsTest, IsRefusedIfNoMorePullsMayBeParked) {
  Open({.parked_pulls_max = 1});
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 1, 1)));
  EXPECT_EQ(OnPull(PullOf(kFirstWorker, 7, 1, 2)).error().code, ErrorCode::kOverloaded);
  pulls_->Drop(kFirstWorker);
  EXPECT_EQ(pulls_->parked(), 0u);
}

TEST_F(PullsTest, IsRefusedIfTooManyRepliesAreUnsent) {
  Open({.reply_peer_bytes_max = 8});
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 0, 1)));
  EXPECT_EQ(pulls_->reply_bytes(), 8u);
  EXPECT_EQ(OnPull(PullOf(kFirstWorker, 7, 0, 2)).error().code, ErrorCode::kOverloaded);
  out_.clear();
  EXPECT_TRUE(OnPull(PullOf(kFirstWorker, 7, 0, 3)));
}

TEST_F(PullsTest, AParkedPullIsRefusedIfItsReplyHasNoRoom) {
  Open({.reply_peer_bytes_max = 8});
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 1, 1)));
  ASSERT_TRUE(OnPull(PullOf(kFirstWorker, 7, 1, 2)));
  Tick(kFirstWorker, 1);
  Tick(kSecondWorker, 1);
  pulls_->AnswerOpened();
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(std::get<ErrorReply>(out_[1].message.body).request, RequestId(2));
}

TEST_F(PullsTest, AnInvalidPullIsRefused) {
  Message unknown = PullOf(kFirstWorker, 7, 0, 1);
  PartOf<Pull>(unknown).table = TableId(9);
  EXPECT_EQ(OnPull(unknown).error().code, ErrorCode::kNotFound);
  Message short_keys = PullOf(kFirstWorker, 7, 0, 1);
  PartOf<Pull>(short_keys).keys.frame = Buffer::Allocate(4);
  EXPECT_EQ(OnPull(short_keys).error().code, ErrorCode::kMalformed);
  Message elsewhere = PullOf(kFirstWorker, 7, 0, 1);
  Section& section = PartOf<Pull>(elsewhere).keys.sections[0];
  section.partition = PartitionId((section.partition.value + 1) % 4);
  EXPECT_EQ(OnPull(elsewhere).error().code, ErrorCode::kWrongShard);
  EXPECT_TRUE(out_.empty());
}

TEST_F(PullsTest, KeysWithAListNumberAreHeld) {
  Message message = PullOf(kFirstWorker, 7, 0, 1);
  PartOf<Pull>(message).keys.list = 3;
  ASSERT_TRUE(OnPull(message));
  EXPECT_NE(lists_.Find(kFirstWorker, 3), nullptr);
}

TEST_F(PullsTest, ItsReplySaysWhetherRowsOfTheTableAreOnDisk) {
  for (const Key keys : {0, 4000}) {
    TieredRows tiered(spec_, keys, AllPartitions());
    Open({}, &*tiered.store);
    ASSERT_TRUE(OnPull(PullOf(kFirstWorker, keys, 0, 1)));  // a new row, in memory
    const auto replies = Take<PullReply>();
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies[0].tables[0].on_disk, tiered.store->tier()->cold_rows() != 0);
    EXPECT_EQ(replies[0].tables[0].on_disk, keys == 4000);
  }
}

TEST_F(PullsTest, OfTwoTablesHasOneReplyWithTheRowsOfBoth) {
  TableSpec other = spec_;
  other.initializer = {InitializerKind::kUniform, 1, 2};
  ASSERT_TRUE(OnPull(PullOfTwo(other, 0)));
  const auto replies = Take<PullReply>();
  ASSERT_EQ(replies.size(), 1u);
  const TableParts<ReplyPart>& parts = replies[0].tables;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].table, TableId(2));
  EXPECT_EQ(parts[1].table, kTable);
  for (const ReplyPart& part : parts) {
    EXPECT_EQ(part.count, 1u);
    EXPECT_EQ(part.versions, std::vector<Version>{Version(0)});
    EXPECT_TRUE(std::ranges::equal(part.values.as<float>(), rows_.Values(part.table, 7).value()));
  }
  EXPECT_EQ(pulls_->reply_bytes(), 16u + 8u) << "12 bytes, padded, and 8";
  EXPECT_EQ(events_.served.size(), 1u);
  EXPECT_EQ(counters_.pulls, 1u);
  EXPECT_EQ(counters_.pull_rows, 2u);
}

TEST_F(PullsTest, OfTwoTablesWaitsForTheClockAndThePushesOfBothAndIsAnsweredOnce) {
  Message pull = PullOfTwo(spec_, 1);
  Section& section = PartOf<Pull>(pull).keys.sections[0];
  section.sequence = Sequence(1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(OnPull(pull));
  EXPECT_EQ(pulls_->parked(), 1u);
  Tick(kFirstWorker, 1);
  Tick(kSecondWorker, 1);
  pulls_->AnswerOpened();
  EXPECT_TRUE(Take<PullReply>().empty()) << "a push is missing";
  rows_.Find(section.partition)->watermarks().Advance(kFirstWorker);
  for (int i = 0; i < 2; ++i) {
    pulls_->AnswerAfterPush(kFirstWorker);
    pulls_->AnswerOpened();
  }
  const auto replies = Take<PullReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].tables.size(), 2u);
  EXPECT_EQ(pulls_->parked_bytes(), 0u);
}

TEST_F(PullsTest, OfTablesWithDifferentConsistencyIsRefused) {
  Message pull = PullOfTwo(CountingTable(ConsistencyMode::kSsp, ApplyMode::kAggregated, 5), 1);
  PartOf<Pull>(pull).keys.list = 3;
  const Status refused = OnPull(pull);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message, "tables 'other' and 't' in one pull: expected tables with the same consistency");
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(pulls_->parked(), 0u);
  EXPECT_EQ(pulls_->reply_bytes(), 0u);
  EXPECT_EQ(lists_.size(), 0u);
  EXPECT_TRUE(events_.served.empty());
}

}  // namespace
}  // namespace tarn::server

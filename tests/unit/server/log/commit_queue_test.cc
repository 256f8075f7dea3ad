// Shows the queue between a log's owner and the strand that writes: one commit at a time, of all waiting records.
#include "server/log/commit_queue.h"

#include <gtest/gtest.h>

#include <variant>

#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

class CommitQueueTest : public testing::Test {
 protected:
  CommitQueueTest() { queue_.Start(LogSequence(4)); }

  int begun_ = 0;
  CommitQueue queue_{[this] { ++begun_; }};
};

TEST_F(CommitQueueTest, ACommitTakesAllWaitingRecords) {
  EXPECT_EQ(queue_.BeginSegment(CheckpointId(2), RecordOf(1)), LogSequence(5));
  EXPECT_EQ(queue_.Append(RecordOf(2)), LogSequence(6));
  queue_.DropBefore(CheckpointId(2));
  EXPECT_EQ(begun_, 1);
  EXPECT_FALSE(queue_.IsIdle());
  EXPECT_EQ(queue_.Take().size(), 4u);
  EXPECT_TRUE(queue_.IsIdle());
  EXPECT_EQ(queue_.Synced(), LogSequence(4));
  queue_.Publish({}, LogSequence(6));
  EXPECT_EQ(queue_.Synced(), LogSequence(6));

  queue_.Append(RecordOf(3));
  queue_.EndTurn();
  EXPECT_EQ(begun_, 1) << "the commit has not ended";
  EXPECT_EQ(queue_.Take().size(), 1u);
  EXPECT_TRUE(queue_.Take().empty());
  queue_.Append(RecordOf(4));
  queue_.Append(RecordOf(5));
  EXPECT_EQ(begun_, 1) << "the owner's turn has not ended";
  queue_.EndTurn();
  queue_.EndTurn();
  EXPECT_EQ(begun_, 2);
}

TEST_F(CommitQueueTest, ManyBytesAreWrittenWithinATurn) {
  LogRecord large = RecordOf(1);
  large.values = Buffer::Allocate(std::size_t{1} << 20);
  large.is_urgent = false;
  queue_.Append(large);
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(queue_.Take().size(), 1u);
}

TEST_F(CommitQueueTest, AfterAFailureNoRecordIsTaken) {
  queue_.Append(RecordOf(1));
  queue_.EndTurn();
  (void)queue_.Take();
  queue_.Publish(Fail(ErrorCode::kIo, "no space left"), LogSequence(9));
  queue_.Append(RecordOf(2));
  EXPECT_TRUE(queue_.Take().empty());
  queue_.Append(RecordOf(3));
  EXPECT_EQ(begun_, 1);
  ASSERT_FALSE(queue_.Synced());
  EXPECT_EQ(queue_.Synced().error().message, "no space left");
}

TEST_F(CommitQueueTest, ARecordThatMayWaitJoinsTheNextUrgentOne) {
  LogRecord tick = RecordOf(1);
  tick.is_urgent = false;
  queue_.Append(tick);
  queue_.EndTurn();
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(queue_.Take().size(), 1u) << "after a wait";
  queue_.Append(tick);
  EXPECT_FALSE(queue_.IsIdle());
  queue_.Append(RecordOf(2));
  EXPECT_EQ(queue_.Take().size(), 2u);
}

TEST_F(CommitQueueTest, AtTheEndNothingWaits) {
  queue_.Append(RecordOf(1));
  queue_.Stop();
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(queue_.Take().size(), 1u);
  EXPECT_FALSE(queue_.IsIdle()) << "there is no time for other work";
}

}  // namespace
}  // namespace tarn::server

// Shows rules K1 to K3, K6 and K7: an order is cut once its clock is open, copied in slices, and its part is reported
// until the order is withdrawn.
#include "server/shard/shard_cuts.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_checkpoint_store.h"
#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

class ShardCutsTest : public PartTest {
 protected:
  ShardCutsTest() {
    AddTable(CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
    for (Key key = 0; key < 200; ++key) Change(key);
  }
  void Change(Key key) {
    const Section section{PartitionOfKey(key), 1, {}};
    const std::vector<float> row = {1, 1};
    ASSERT_TRUE(rows_.Apply(spec_.id, {&section, 1}, {&key, 1}, ValueCodec::kFp32,
                            reinterpret_cast<const std::byte*>(row.data()), Clock(0)));
  }
  static CheckpointOrder OrderOf(std::uint64_t id) {
    CheckpointOrder order;
    order.id = CheckpointId(id);
    order.directory = "checkpoints/" + std::to_string(id);
    return order;
  }
  // Copies the remaining slices of the cut, a microsecond apart. Returns their number.
  int RunToTheEnd() {
    int slices = 0;
    for (; cuts_.cutting().value != 0; ++slices) {
      step_.Begin(step_.now() + 1, &out_);
      cuts_.OnTimer();
    }
    return slices;
  }
  void ReportWritten() {
    for (CheckpointPart& part : std::exchange(written_, {})) cuts_.OnWritten(std::move(part));
  }
  MemoryCheckpointFiles files_;
  std::vector<CheckpointPart> written_;
  MemoryCheckpointStore store_{&files_, ShardId(0), [this](const CheckpointPart& part) { written_.push_back(part); }};
  std::vector<Clock> closed_below_;
  std::vector<CheckpointId> cut_;
  ShardCuts cuts_{{.slice_bytes = 400, .pause_us = 0},
                  {.store = &store_,
                   .rows = &rows_,
                   .cohort = &clocks_.cohort(),
                   .outbox = &outbox_,
                   .step = &step_,
                   .stop = &stop_,
                   .counters = &counters_,
                   .close_below = [this](Clock clock) { closed_below_.push_back(clock); },
                   .on_cut = [this](CheckpointId id) { cut_.push_back(id); },
                   .shards_of_view = [] { return 1u; }}};
};

TEST_F(ShardCutsTest, AnOrderIsCutAtOnceAndCopiedInSlices) {
  const std::uint64_t hash = rows_.StateHash().value();
  cuts_.Adopt(OrderOf(1));
  cuts_.CutIfDue();
  EXPECT_EQ(cuts_.cutting(), CheckpointId(1));
  EXPECT_EQ(cuts_.writing(), CheckpointId(1));
  EXPECT_EQ(cut_, std::vector<CheckpointId>{CheckpointId(1)});
  EXPECT_EQ(cuts_.NextTimer(step_.now() + 1), step_.now());
  Change(3);
  EXPECT_GT(RunToTheEnd(), 3);
  ReportWritten();
  EXPECT_EQ(cuts_.writing(), CheckpointId(0));
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].state_hash, hash) << "the rows are those of the cut";
  EXPECT_EQ(counters_.checkpoints, 1u);
}

TEST_F(ShardCutsTest, AnOrderOfAClockWaitsForIt) {
  CheckpointOrder order = OrderOf(1);
  order.at_clock = true;
  order.clock = Clock(2);
  cuts_.Adopt(order);
  cuts_.CutIfDue();
  EXPECT_EQ(cuts_.cutting(), CheckpointId(0));
  EXPECT_TRUE(cuts_.MayApply(Clock(1)));
  EXPECT_FALSE(cuts_.MayApply(Clock(2))) << "it would come into the cut";
  Tick(kFirstWorker, 2);
  Tick(kSecondWorker, 3);
  cuts_.CutIfDue();
  EXPECT_EQ(closed_below_, std::vector<Clock>{Clock(2)});
  EXPECT_EQ(cuts_.cutting(), CheckpointId(1));
  EXPECT_TRUE(cuts_.MayApply(Clock(2)));
}

TEST_F(ShardCutsTest, K12NoPushIsAcceptedThatTheLastCheckpointWouldLack) {
  cuts_.Adopt(OrderOf(1));
  EXPECT_TRUE(cuts_.MayAccept(Clock(0))) << "training goes on after it";
  CheckpointOrder order = OrderOf(2);
  order.whole_hash = true;
  order.last = true;
  cuts_.Adopt(order);
  EXPECT_FALSE(cuts_.MayAccept(Clock(0)));
  cuts_.CutIfDue();
  RunToTheEnd();
  ReportWritten();
  cuts_.Adopt(order);
  EXPECT_FALSE(cuts_.MayAccept(Clock(0))) << "it is not complete, or the run ends";
  cuts_.Adopt({});
  EXPECT_TRUE(cuts_.MayAccept(Clock(0)));

  order.id = CheckpointId(3);
  order.at_clock = true;
  order.clock = Clock(4);
  cuts_.Adopt(order);
  EXPECT_TRUE(cuts_.MayAccept(Clock(3)));
  EXPECT_FALSE(cuts_.MayAccept(Clock(4))) << "it would be acknowledged, and is in no checkpoint";
}

TEST_F(ShardCutsTest, ThePartIsRepeatedUntilTheOrderIsWithdrawn) {
  cuts_.Adopt(OrderOf(1));
  cuts_.CutIfDue();
  RunToTheEnd();
  ReportWritten();
  cuts_.SendPart();
  EXPECT_EQ(Take<CheckpointPart>().size(), 2u);
  cuts_.Adopt({});
  cuts_.SendPart();
  EXPECT_TRUE(Take<CheckpointPart>().empty());
}

TEST_F(ShardCutsTest, AWithdrawnOrderIsAbandoned) {
  cuts_.Adopt(OrderOf(1));
  cuts_.CutIfDue();
  cuts_.Adopt({});
  EXPECT_EQ(cuts_.cutting(), CheckpointId(0));
  EXPECT_FALSE(rows_.cut().active());
  ReportWritten();
  EXPECT_EQ(cuts_.writing(), CheckpointId(0));
  EXPECT_TRUE(Take<CheckpointPart>().empty()) << "nobody wants it";
}

TEST_F(ShardCutsTest, APartThatFailsStaysFailed) {
  cuts_.Adopt(OrderOf(1));
  cuts_.CutIfDue();
  cuts_.Report({.id = CheckpointId(1), .code = ErrorCode::kIo, .message = "no room"});
  EXPECT_EQ(cuts_.cutting(), CheckpointId(0)) << "no more rows are copied";
  ReportWritten();
  cuts_.SendPart();
  for (const CheckpointPart& part : Take<CheckpointPart>()) EXPECT_EQ(part.code, ErrorCode::kIo);
}

TEST_F(ShardCutsTest, AnOrderWithoutAFolderAsksForTheHash) {
  CheckpointOrder order = OrderOf(1);
  order.directory.clear();
  order.whole_hash = true;
  cuts_.Adopt(order);
  cuts_.CutIfDue();
  RunToTheEnd();
  EXPECT_TRUE(cut_.empty()) << "it is no checkpoint";
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].whole_hash, rows_.StateHash().value());
}

TEST_F(ShardCutsTest, AnIncrementHoldsTheChangesSinceThePreviousCheckpoint) {
  cuts_.Adopt(OrderOf(1));
  cuts_.CutIfDue();
  RunToTheEnd();
  ReportWritten();
  out_.clear();
  Change(3);
  CheckpointOrder next = OrderOf(2);
  next.base = CheckpointId(1);
  next.base_directory = "checkpoints/1";
  cuts_.Adopt(next);
  cuts_.CutIfDue();
  RunToTheEnd();
  ReportWritten();
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  ASSERT_EQ(parts[0].code, ErrorCode::kOk);
  EXPECT_EQ(parts[0].files.at(0).rows, 1u);
}

TEST_F(ShardCutsTest, AnUnknownBaseIsReported) {
  CheckpointOrder order = OrderOf(5);
  order.base = CheckpointId(4);
  cuts_.Adopt(order);
  cuts_.CutIfDue();
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].code, ErrorCode::kNotFound);
  EXPECT_EQ(parts[0].message, "what changed since checkpoint 4 is not known");
}

TEST_F(ShardCutsTest, ARestoredOrderIsNotCutAgain) {
  cuts_.RestoreNewestOrder(CheckpointId(3));
  cuts_.Adopt(OrderOf(3));
  cuts_.CutIfDue();
  EXPECT_EQ(cuts_.cutting(), CheckpointId(0));
  EXPECT_EQ(cuts_.newest_order(), CheckpointId(3));
}

}  // namespace
}  // namespace tarn::server

// Shows which parts of a cut are missing, and which workers' states its manifest contains (rules K1, K2, K9).
#include "scheduler/checkpoints/cut.h"

#include <gtest/gtest.h>

namespace tarn::scheduler {
namespace {

class CutTest : public testing::Test {
 protected:
  CutTest() {
    cut_.order.id = CheckpointId(3);
    cut_.order.directory = "ckpt-3";
    cut_.order.clock = Clock(9);
  }
  Incarnation AddLive(std::uint32_t rank, Clock join) {
    const Incarnation id(10 - rank);
    workers_.Add(WorkerRank(rank), id, id.value, Peer(id.value), 0);
    workers_.MakeLive(id, join, ViewVersion(1));
    return id;
  }
  bool Missing() const { return PartsMissing(cut_, 1, workers_); }

  Workers workers_{{.ranks = 4}};
  Cut cut_;
};

TEST_F(CutTest, ACutAtOnceNeedsThePartOfEveryShard) {
  AddLive(0, Clock(0));
  EXPECT_TRUE(Missing());
  cut_.shards[ShardId(0)];
  EXPECT_FALSE(Missing());
}

TEST_F(CutTest, ACutAtAClockNeedsEveryWorkerOfEarlierClocks) {
  cut_.order.at_clock = true;
  cut_.shards[ShardId(0)];
  const Incarnation before = AddLive(0, Clock(8));
  AddLive(1, Clock(9));  // joins at the clock
  EXPECT_TRUE(Missing());
  workers_.Fence(before);
  EXPECT_TRUE(Missing());
  workers_.End(before, Clock(8));
  EXPECT_FALSE(Missing());
}

TEST_F(CutTest, K9TheStateOfEachLiveWorkerThatKeepsOneIsNeeded) {
  cut_.order.blobs = true;
  cut_.shards[ShardId(0)];
  const Incarnation a = AddLive(0, Clock(0)), b = AddLive(1, Clock(0));
  AddLive(2, Clock(0));  // joined after the order
  cut_.had_workers = {a, b};
  cut_.blobs[b].files = {{"blob-1", 7, 1}};
  EXPECT_TRUE(Missing());
  cut_.blobs[a].files = {{"blob-0", 7, 1}};
  EXPECT_FALSE(Missing());
  Notes notes;
  auto blobs = BlobsOf(cut_, workers_, &notes);
  ASSERT_EQ(blobs.size(), 2u);
  EXPECT_EQ(blobs[0].rank, WorkerRank(0));  // by rank, not by incarnation
  workers_.Fence(a);
  blobs = BlobsOf(cut_, workers_, &notes);
  ASSERT_EQ(blobs.size(), 1u);
  EXPECT_EQ(notes.Take().at(0).text, "checkpoint 3 does not contain the state of worker 0, which has ended");
}

TEST_F(CutTest, AWorkerThatEndsBeyondTheClockWithoutAPartVoidsTheCut) {
  cut_.order.at_clock = true;
  Verdict verdict{.worker = Incarnation(1), .join = Clock(2), .end = Clock(10)};
  EXPECT_TRUE(IsVoidedBy(cut_, verdict));
  verdict.end = Clock(9);
  EXPECT_FALSE(IsVoidedBy(cut_, verdict));
  verdict = {.worker = Incarnation(1), .join = Clock(9), .end = Clock(10)};
  EXPECT_FALSE(IsVoidedBy(cut_, verdict));
  verdict.join = Clock(2);
  cut_.workers[Incarnation(1)];
  EXPECT_FALSE(IsVoidedBy(cut_, verdict));
  verdict.keeps_state = true;
  cut_.had_workers = {Incarnation(1)};
  EXPECT_FALSE(IsVoidedBy(cut_, verdict)) << "only hashes";
  cut_.order.blobs = true;
  EXPECT_TRUE(IsVoidedBy(cut_, verdict));
}

}  // namespace
}  // namespace tarn::scheduler

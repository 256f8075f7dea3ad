// Shows DataSets alone: sizes are fixed once, and passes are cut into splits that fit the fleet.
#include "scheduler/leases/data_sets.h"

#include <gtest/gtest.h>

namespace tarn::scheduler {
namespace {

Job JobOf(std::uint32_t workers) {
  Job job;
  job.fleet.workers = workers;
  job.train.batch_rows = 10;
  job.data.split_rows = 25;
  return job;
}

TEST(DataSets, TheFirstReportFixesTheSizes) {
  DataSets data(JobOf(2));
  EXPECT_TRUE(data.Set({0, 0, 0}));  // a program that does not read data
  EXPECT_FALSE(data.known());
  EXPECT_FALSE(data.Set({0, 5, 0}));  // nothing to train
  EXPECT_FALSE(data.known());
  EXPECT_TRUE(data.Set({95, 40, 0}));
  EXPECT_TRUE(data.known());
  EXPECT_EQ(data.rows(LeasePurpose::kValidate), 40u);
  EXPECT_EQ(data.split_rows(), 30u);  // whole batches
  EXPECT_TRUE(data.Set({95, 40, 0}));
  EXPECT_TRUE(data.Set({0, 0, 0}));
  EXPECT_EQ(data.Set({96, 40, 0}).error().code, ErrorCode::kInvalidArgument);
}

TEST(DataSets, PassesAreCutIntoSplits) {
  Job job = JobOf(2);
  DataSets data(job);
  ASSERT_TRUE(data.Set({95, 40, 0}));
  EXPECT_EQ(data.MakeTraining(0, {}).size(), 4u);
  EXPECT_EQ(data.MakeTraining(0, {30, 10}).done(), 1u);
  const Splits evaluation = data.MakeEvaluation(LeasePurpose::kValidate, 0);
  EXPECT_EQ(evaluation.rows(), 40u);
  EXPECT_EQ(evaluation.size(), 4u);
}

TEST(DataSets, TheRowsOfAClockFollowTheEpochsSetting) {
  Job job = JobOf(1);
  job.local.method = LocalMethod::kDelta;
  job.local.steps = 4;
  job.local.from_epoch = 3;
  DataSets data(job);
  ASSERT_TRUE(data.Set({80, 0, 0}));
  EXPECT_EQ(data.split_rows(), 40u);
  for (const std::uint32_t epoch : {0u, 1u, 2u, 3u}) {
    Splits splits = data.MakeTraining(epoch, {});
    EXPECT_EQ(splits.BatchesLeft(0), epoch < 2 ? 4u : 1u) << epoch;
    EXPECT_EQ(splits.Grant(0, LeaseId(1), Incarnation(1)).batch_rows, epoch < 2 ? 10u : 40u) << epoch;
  }
}

// Rule D2: the ranks' batches differ, so that ranks with smaller ones get fewer splits and as many clocks.
TEST(DataSets, RanksHaveSplitsInProportionToTheirBatches) {
  Job job = JobOf(3);
  job.train.batch_shares = {2, 2, 1};
  EXPECT_EQ(BatchRowsByRank(job), (std::vector<std::uint64_t>{12, 12, 6}));
  DataSets data(job);
  ASSERT_TRUE(data.Set({96 * 50, 0, 0}));
  ASSERT_EQ(data.split_rows(), 96u) << "eight of the largest batches";
  Splits splits = data.MakeTraining(0, {});
  std::vector<std::uint32_t> owners(splits.size());
  std::vector<std::uint64_t> batches(3);
  LeaseId last;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    while (const auto split = splits.Next(WorkerRank(rank), {WorkerRank(0), WorkerRank(1), WorkerRank(2)})) {
      owners[*split] = rank;
      batches[rank] += splits.BatchesLeft(*split);
      last = LeaseId(last.value + 1);
      EXPECT_EQ(splits.Grant(*split, last, Incarnation(rank + 1)).batch_rows, rank == 2 ? 6u : 12u);
    }
  EXPECT_EQ(std::vector(owners.begin(), owners.begin() + 10),
            (std::vector<std::uint32_t>{0, 1, 0, 1, 2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(batches, (std::vector<std::uint64_t>{160, 160, 160}));
  EXPECT_EQ(splits.MostOwnedBatches(), 160u);
}

TEST(DataSets, ClocksAreNearlyFullEvenIfNoBatchDividesASplit) {
  Job job = JobOf(4);
  job.train.batch_rows = 256;
  job.train.batch_shares = {30, 30, 23, 10};
  DataSets data(job);
  ASSERT_TRUE(data.Set({1'000'000, 0, 0}));
  const double clocks = double(data.MakeTraining(0, {}).MostOwnedBatches());
  EXPECT_LT(clocks, 1'000'000.0 / (4 * 256) * 1.06);
}

TEST(DataSets, SplitsOfADeadRankAreTrainedInBatchesOfTheSmallerOne) {
  Job job = JobOf(2);
  job.train.batch_shares = {3, 1};  // 15 and 5 rows
  DataSets data(job);
  ASSERT_TRUE(data.Set({480, 0, 0}));
  Splits splits = data.MakeTraining(0, {60});
  EXPECT_EQ(splits.Next(WorkerRank(1), {WorkerRank(1)}), 3u) << "its own first";
  EXPECT_EQ(splits.BatchesLeft(0), 4u);
  EXPECT_EQ(splits.BatchesLeft(0, WorkerRank(1)), 12u);
  EXPECT_EQ(splits.Grant(0, LeaseId(1), Incarnation(1), WorkerRank(1)).batch_rows, 5u);
  EXPECT_EQ(splits.Grant(3, LeaseId(2), Incarnation(1), WorkerRank(0)).batch_rows, 5u);
}

TEST(DataSets, ARankWithSmallBatchesMayGetNoSplitOfASmallSet) {
  Job job = JobOf(4);
  job.train.batch_shares = {9, 9, 9, 1};
  DataSets data(job);
  ASSERT_TRUE(data.Set({600, 0, 0}));
  const Splits splits = data.MakeTraining(0, {});
  EXPECT_EQ(splits.size(), 6u);
  EXPECT_EQ(splits.RanksWithoutSplits(), 1u);
}

TEST(DataSets, AResumedRunKeepsItsSplitsUntilTheyAreChosenAgain) {
  DataSets data(JobOf(2));
  ASSERT_TRUE(data.Set({95, 40, 0}));
  DataState state;
  data.Fill(&state);
  Job other = JobOf(3);
  other.data.split_rows = 70;
  DataSets resumed(other);
  resumed.Resume(state);
  EXPECT_TRUE(resumed.known());
  EXPECT_EQ(resumed.split_rows(), 30u);
  resumed.ChooseSplitRows();
  EXPECT_EQ(resumed.split_rows(), 70u);
  DataSets fresh(other);
  fresh.Resume({});
  EXPECT_FALSE(fresh.known());
}

}  // namespace
}  // namespace tarn::scheduler

// Shows the bookkeeping of splits and of the epoch's clocks (rules D1-D4) without a fleet.
#include "scheduler/leases/leases.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

Splits Make(std::uint64_t rows, std::uint32_t owners = 0, bool shuffle = false, std::uint32_t epoch = 0) {
  return Splits({.purpose = LeasePurpose::kTrain,
                 .epoch = epoch,
                 .rows = rows,
                 .split_rows = 30,
                 .batch_rows = 10,
                 .owners = owners,
                 .shuffle = shuffle,
                 .seed = 7});
}

const std::set<WorkerRank> kBoth = {WorkerRank(0), WorkerRank(1)};

TEST(Splits, TheLastSplitMayBeShorter) {
  Splits splits = Make(95);
  EXPECT_EQ(splits.size(), 4u);
  std::uint64_t rows = 0;
  for (std::uint64_t i = 1; splits.Next(WorkerRank(0), kBoth); ++i) {
    const LeaseGrant grant = splits.Grant(*splits.Next(WorkerRank(0), kBoth), LeaseId(i), Incarnation(1));
    EXPECT_EQ(grant.first_row, rows);
    rows += grant.rows;
  }
  EXPECT_EQ(rows, 95u);
}

TEST(Splits, ShuffleIsAPermutationByEpoch) {
  auto order = [](std::uint32_t epoch) {
    Splits splits = Make(300, 0, true, epoch);
    std::vector<std::uint64_t> first;
    for (std::uint64_t i = 1; i <= 10; ++i)
      first.push_back(splits.Grant(*splits.Next(WorkerRank(0), kBoth), LeaseId(i), Incarnation(1)).first_row);
    return first;
  };
  const auto first = order(0), second = order(1);
  EXPECT_EQ(first, order(0));
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()), std::set(second.begin(), second.end()));
}

TEST(Splits, ATakenBackSplitContinuesAtThePosition) {
  Splits splits = Make(90);
  for (std::uint32_t i = 0; i < 3; ++i) splits.Grant(i, LeaseId(i + 1), Incarnation(1));
  splits.Take(Incarnation(1), {LeaseId(2), 20}, false);
  EXPECT_EQ(splits.done(), 1u);
  EXPECT_EQ(splits.Trained({}, true), (std::vector<std::uint64_t>{30, 20, 0}));
  EXPECT_EQ(*splits.Next(WorkerRank(0), kBoth), 1u);
  EXPECT_EQ(splits.BatchesLeft(1), 1u);
  const LeaseGrant grant = splits.Grant(1, LeaseId(4), Incarnation(2));
  EXPECT_EQ(grant.skip_rows, 20u);
  EXPECT_EQ(grant.rows, 30u);
  EXPECT_EQ(splits.Trained({{Incarnation(2), {LeaseId(4), 20}}}, true), (std::vector<std::uint64_t>{30, 20, 0}));
  EXPECT_EQ(splits.Trained({{Incarnation(2), {LeaseId(4), 30}}}, true), (std::vector<std::uint64_t>{30, 30, 0}));
}

TEST(Splits, DoneCountsOnceAndOnlyFromTheOwner) {
  Splits splits = Make(30);
  splits.Grant(0, LeaseId(1), Incarnation(1));
  LeaseDone done{LeaseId(1), {}};
  done.quality.rows = 30;
  EXPECT_FALSE(splits.Done(Incarnation(2), done));
  EXPECT_TRUE(splits.Done(Incarnation(1), done));
  EXPECT_FALSE(splits.Done(Incarnation(1), done));
  EXPECT_TRUE(splits.AllDone());
  EXPECT_EQ(splits.quality().rows, 30u);
}

TEST(Splits, HeldSplitsWaitForTheirRelease) {
  Splits splits = Make(60);
  splits.Grant(0, LeaseId(1), Incarnation(1));
  splits.Grant(1, LeaseId(2), Incarnation(1));
  splits.Take(Incarnation(1), {LeaseId(1), 10}, true);
  EXPECT_EQ(*splits.Next(WorkerRank(0), kBoth), 1u);  // no row of it was trained: free at once
  splits.Release();
  EXPECT_EQ(*splits.Next(WorkerRank(0), kBoth), 0u);
}

TEST(Splits, ByRankOthersGetOnlyTheSplitsOfDeadRanks) {
  Splits splits = Make(120, 2);
  EXPECT_EQ(*splits.Next(WorkerRank(1), kBoth), 1u);
  splits.Grant(1, LeaseId(1), Incarnation(2));
  splits.Grant(3, LeaseId(2), Incarnation(2));
  EXPECT_FALSE(splits.Next(WorkerRank(1), kBoth));
  EXPECT_EQ(*splits.Next(WorkerRank(1), {WorkerRank(1)}), 0u);
  EXPECT_EQ(splits.MostOwnedBatches(), 6u);
}

TEST(Leases, SplitSizesFitTheFleet) {
  Job job = SmallJob(1, 4);
  job.data.split_rows = 0;
  job.train.batch_rows = 256;
  Leases leases(job, Clock(0));
  ASSERT_TRUE(leases.SetSizes({261878, 0, 0}));
  EXPECT_GE(leases.train().size(), 100u);
  EXPECT_LE(leases.train().size(), 200u);
  Job odd = SmallJob(1, 1);
  odd.data.split_rows = 25;
  Leases rounded(odd, Clock(0));
  ASSERT_TRUE(rounded.SetSizes({90, 0, 0}));
  EXPECT_EQ(rounded.train().size(), 3u);  // of 30 rows
}

// A partly trained epoch keeps its splits; the next one has those of the resumed job.
TEST(Leases, AResumedJobsSplitRowsCountFromTheNextEpoch) {
  DataState state{.rows = {120, 0, 0}, .split_rows = 60, .trained = {60, 10}};
  Job job = SmallJob(1, 3);
  job.data.split_rows = 30;
  Leases leases(job, Clock(0));
  leases.Resume(state);
  EXPECT_EQ(leases.train().size(), 2u);
  leases.BeginEpoch(1);
  EXPECT_EQ(leases.train().size(), 4u);
  state.trained = {0, 0};
  Leases untrained(job, Clock(0));
  untrained.Resume(state);
  EXPECT_EQ(untrained.train().size(), 4u);
  Leases restored(job, Clock(0));
  restored.Resume(state, true);
  EXPECT_EQ(restored.train().size(), 2u) << "its leases are for these splits";
}

TEST(Leases, TheCeilingGrowsWithTheLeasesOfDeadWorkers) {
  Leases leases(SmallJob(1, 2), Clock(0));
  ASSERT_TRUE(leases.SetSizes({60, 0, 0}));
  leases.Join(Incarnation(1), WorkerRank(0), Clock(0));
  leases.Join(Incarnation(2), WorkerRank(1), Clock(0));
  EXPECT_EQ(leases.ceiling(), Clock(3));
  EXPECT_EQ(leases.AnswerTraining(Incarnation(1), 5)->grants.size(), 1u);
  EXPECT_EQ(leases.AnswerTraining(Incarnation(2), 5)->grants.size(), 1u);
  EXPECT_EQ(leases.AnswerTraining(Incarnation(1), 5)->jump_to, Clock(3));
  EXPECT_FALSE(leases.AnswerTraining(Incarnation(1), 5));  // waits
  leases.End(Incarnation(2), {LeaseId(2), 10}, Clock(1));
  const auto reply = leases.AnswerTraining(Incarnation(1), 5);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->grants[0].skip_rows, 10u);
  EXPECT_EQ(leases.ceiling(), Clock(5));
}

// Rule C8: splits do not belong to ranks, and a worker that has skipped clocks needs as many more to end its leases.
TEST(Leases, SkippedClocksRaiseTheCeiling) {
  Job job = SmallJob(1, 2);
  job.consistency.backup_workers = 1;
  Leases leases(job, Clock(0));
  ASSERT_TRUE(leases.SetSizes({60, 0, 0}));
  leases.Join(Incarnation(1), WorkerRank(0), Clock(0));
  leases.Join(Incarnation(2), WorkerRank(1), Clock(0));
  EXPECT_EQ(leases.ceiling(), Clock(0));
  for (const std::uint64_t worker : {1, 2}) EXPECT_EQ(leases.AnswerTraining(Incarnation(worker), 5)->grants.size(), 1u);
  EXPECT_EQ(leases.ceiling(), Clock(3));
  EXPECT_EQ(leases.AnswerTraining(Incarnation(1), 5)->jump_to, Clock(3));
  leases.NoteSkipped(Incarnation(2), 2);
  EXPECT_EQ(leases.ceiling(), Clock(5));
  EXPECT_EQ(leases.AnswerTraining(Incarnation(1), 5)->jump_to, Clock(5));
  leases.NoteSkipped(Incarnation(2), 1);  // overtaken by a newer report
  leases.NoteSkipped(Incarnation(2), 2);
  leases.NoteSkipped(Incarnation(3), 9);  // unknown
  EXPECT_EQ(leases.ceiling(), Clock(5));
}

TEST(Leases, NoWorkerPassesTheCeilingDuringACut) {
  Leases leases(SmallJob(1, 2), Clock(0));
  ASSERT_TRUE(leases.SetSizes({60, 0, 0}));
  leases.Join(Incarnation(1), WorkerRank(0), Clock(0));
  leases.Join(Incarnation(2), WorkerRank(1), Clock(0));
  leases.AnswerTraining(Incarnation(1), 5);
  leases.AnswerTraining(Incarnation(1), 5);
  leases.Hold();
  leases.End(Incarnation(2), {}, Clock(0));
  EXPECT_FALSE(leases.AnswerTraining(Incarnation(1), 5));
  EXPECT_EQ(leases.ceiling(), Clock(3));
  leases.Release();
  EXPECT_TRUE(leases.AnswerTraining(Incarnation(1), 5));
}

TEST(Leases, ARecordedOrderIsRepeated) {
  Job job = SmallJob(1, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  Leases leases(job, Clock(0));
  leases.SetOrder({WorkerRank(1), WorkerRank(1), WorkerRank(0)});
  ASSERT_TRUE(leases.SetSizes({120, 0, 0}));
  const Incarnation zero(1), one(2);
  leases.Join(zero, WorkerRank(0), Clock(0));
  leases.Join(one, WorkerRank(1), Clock(0));
  EXPECT_FALSE(leases.AnswerTraining(zero, 5));
  EXPECT_TRUE(leases.AwaitsTurn(zero));
  EXPECT_FALSE(leases.AwaitsTurn(one));
  EXPECT_EQ(leases.AnswerTraining(one, 5)->grants.size(), 2u);
  EXPECT_FALSE(leases.AnswerTraining(one, 5)) << "no jump: more leases are granted later";
  EXPECT_EQ(leases.AnswerTraining(zero, 5)->grants.size(), 1u);
  EXPECT_FALSE(leases.AnswerTraining(zero, 5)) << "nothing is granted beyond the order";
  EXPECT_TRUE(leases.AwaitsTurn(zero));
}

TEST(Leases, DynamicGrantsLeaveSplitsForOthers) {
  Job job = SmallJob(1, 4);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  Leases leases(job, Clock(0));
  ASSERT_TRUE(leases.SetSizes({180, 0, 0}));
  for (std::uint32_t i = 0; i < 4; ++i) leases.Join(Incarnation(i + 1), WorkerRank(i), Clock(0));
  EXPECT_EQ(leases.AnswerTraining(Incarnation(1), 60)->grants.size(), 2u);
}

}  // namespace
}  // namespace tarn::scheduler

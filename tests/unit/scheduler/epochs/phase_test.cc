// Shows how a run passes through its phases (rules D1-D5, S1): epochs, evaluation at the ceiling, the best epoch,
// patience and the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

// Works until the phase is `phase`. Returns false if it is not reached.
bool WorkUntil(FakeFleet& fleet, const std::string& phase) {
  for (int i = 0; i < 5000; ++i) {
    if (fleet.scheduler.progress().phase == phase) return true;
    bool any = false;
    for (auto& worker : fleet.workers) any |= fleet.Work(*worker);
    if (!any) fleet.Pass(0.5);
  }
  return false;
}

TEST(Phase, EpochsWithEvaluationRunToTheEnd) {
  Job job = SmallJob(2, 2);
  job.train.epochs = 3;
  FakeFleet fleet(job);
  fleet.rows[0] = 205;
  fleet.rows[1] = 44;
  fleet.rows[2] = 13;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  const Progress progress = fleet.scheduler.progress();
  EXPECT_EQ(progress.phase, "done");
  EXPECT_EQ(progress.samples, 3 * 205u);
  EXPECT_EQ(progress.samples_total, 3 * 205u);
  ASSERT_EQ(progress.epochs.size(), 3u);
  EXPECT_TRUE(progress.epochs[0].best);
  EXPECT_FALSE(progress.epochs[1].best);  // no better
  EXPECT_TRUE(progress.epochs[0].test);
  EXPECT_FALSE(progress.epochs[1].test);
  EXPECT_EQ(progress.epochs[0].valid->rows, 44u);
  EXPECT_EQ(progress.epochs[0].test->rows, 13u);
  EXPECT_EQ(progress.epochs[2].train.rows, 205u);
  EXPECT_DOUBLE_EQ(progress.epochs[0].train.log_loss, 0.5);
  EXPECT_TRUE(progress.has_state_hash);  // rule K6
  EXPECT_EQ(progress.state_hash, 100u + 101u);
  EXPECT_TRUE(fleet.store.manifests.empty());
  for (const auto& worker : fleet.workers) EXPECT_EQ(worker->shutdown->code, ErrorCode::kOk);
  for (const auto& shard : fleet.shards) EXPECT_EQ(shard->shutdown->code, ErrorCode::kOk);
}

// Only a program can report such a lease; the built-in training loop ends before that.
TEST(Phase, ALeaseWithoutAFiniteLossEndsTheRunAsDiverged) {
  for (const bool train : {true, false})
    for (const double loss : {std::nan(""), double(INFINITY), 0.5}) {
      FakeFleet fleet(SmallJob(1, 1));
      fleet.rows[0] = 60;
      fleet.rows[1] = 20;
      (train ? fleet.other_loss : fleet.valid_loss) = loss;
      fleet.AddAll();
      ASSERT_TRUE(fleet.RunToEnd());
      const bool diverges = !std::isfinite(loss);
      EXPECT_EQ(fleet.scheduler.progress().phase, diverges ? "diverged" : "done");
      EXPECT_EQ(fleet.scheduler.stop_reason().code, diverges ? ErrorCode::kDiverged : ErrorCode::kOk);
      EXPECT_EQ(fleet.scheduler.stop_reason().reason.starts_with("worker 0: training has diverged by clock "), diverges)
          << fleet.scheduler.stop_reason().reason;
      ASSERT_TRUE(fleet.workers[0]->shutdown);
      EXPECT_EQ(fleet.workers[0]->shutdown->code, fleet.scheduler.stop_reason().code);
    }
}

TEST(Phase, ASumOfLossesThatOverflowsEndsTheRunAsDiverged) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.rows[0] = 60;
  fleet.other_loss = 4e306;  // per row; a lease has 30 rows
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().phase, "diverged");
  EXPECT_TRUE(fleet.scheduler.stop_reason().reason.contains("epoch 1")) << fleet.scheduler.stop_reason().reason;
}

TEST(Phase, AWorkerThatHasDivergedEndsTheRunAsDiverged) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.rows[0] = 60;
  fleet.AddAll();
  fleet.Send(*fleet.workers[0], Shutdown{ErrorCode::kDiverged, "at clock 3, in table 'linear'"});
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().phase, "diverged");
  EXPECT_EQ(fleet.scheduler.stop_reason().reason, "worker 0: at clock 3, in table 'linear'");
  EXPECT_EQ(fleet.shards[0]->shutdown->code, ErrorCode::kDiverged);
}

// The answer to a Leave is lost. If the scheduler ended before repeating it, the worker would wait for a whole lease.
TEST(Phase, TheSchedulerStaysUntilWorkersThatLeftHaveConfirmed) {
  FakeFleet fleet(SmallJob(2, 2));
  fleet.rows[0] = 60;
  fleet.AddAll();
  fleet.workers[1]->shutdowns_lost = 2;  // the answer to Leave, and the first Shutdown at the end
  ASSERT_TRUE(fleet.RunToEnd());
  ASSERT_TRUE(fleet.workers[1]->shutdown);
  EXPECT_EQ(fleet.workers[1]->shutdown->code, ErrorCode::kOk);
}

TEST(Phase, ClocksOfAnEpochEndTogether) {
  Job job = SmallJob(1, 2);
  job.train.epochs = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 90;  // three splits of three batches: rank 0 has two of them
  fleet.AddAll();
  std::set<std::uint64_t> second;
  for (int i = 0; i < 2000 && second.empty(); ++i) {
    bool any = false;
    for (auto& worker : fleet.workers) {
      if (!worker->leases.empty() && worker->leases.front().epoch == 1) second.insert(worker->clock.value);
      any |= fleet.Work(*worker);
    }
    if (!any) fleet.Pass(0.5);
  }
  EXPECT_EQ(second, std::set<std::uint64_t>{6});
}

TEST(Phase, ByRankEachRankHasItsOwnSplitsInOrder) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.rows[0] = 205;
  fleet.AddAll();
  std::map<std::uint32_t, std::vector<std::uint64_t>> first_rows;
  for (int i = 0; i < 5000 && !fleet.scheduler.stopped(); ++i) {
    bool any = false;
    for (auto& worker : fleet.workers) {
      const std::size_t before = worker->leases.size();
      any |= fleet.Work(*worker);
      for (std::size_t k = before; k < worker->leases.size(); ++k)
        first_rows[worker->rank.value].push_back(worker->leases[k].first_row);
    }
    if (!any) fleet.Pass(0.5);
  }
  EXPECT_EQ(first_rows[0], (std::vector<std::uint64_t>{0, 60, 120, 180}));
  EXPECT_EQ(first_rows[1], (std::vector<std::uint64_t>{30, 90, 150}));
}

TEST(Phase, EvaluationWaitsForEveryWorker) {
  Job job = SmallJob(1, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 60;
  fleet.rows[1] = 20;
  fleet.AddAll();
  // One worker does its split, reports, jumps and asks; the other does not move.
  for (int i = 0; i < 20; ++i) fleet.Work(*fleet.workers[0]);
  fleet.Pass(1);
  EXPECT_EQ(fleet.scheduler.progress().phase, "train");
  EXPECT_TRUE(fleet.workers[0]->waits);
  ASSERT_TRUE(WorkUntil(fleet, "validate"));
  for (const auto& worker : fleet.workers) EXPECT_GE(worker->clock, Clock(3));
}

TEST(Phase, AWorkerMayBeReplacedDuringEvaluation) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.rows[0] = 60;
  fleet.rows[1] = 200;
  fleet.AddAll();
  ASSERT_TRUE(WorkUntil(fleet, "validate"));
  fleet.Kill(*fleet.workers[1]);
  fleet.AddWorker(1);
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().epochs[0].valid->rows, 200u);
}

TEST(Phase, PatienceStopsEarly) {
  Job job = SmallJob(1, 2);
  job.train.epochs = 10;
  job.train.patience = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 60;
  fleet.rows[1] = 20;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().epochs.size(), 3u);  // the best and two that are no better
}

TEST(Phase, DifferentSizesAreRefusedAndNoTrainingDataEndsTheJob) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.rows[0] = 60;
  fleet.AddAll();
  fleet.Work(*fleet.workers[0]);
  fleet.rows[0] = 61;
  fleet.Work(*fleet.workers[1]);
  ASSERT_TRUE(fleet.workers[1]->shutdown);
  EXPECT_EQ(fleet.workers[1]->shutdown->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(fleet.workers[1]->shutdown->reason.find("61"), std::string::npos);
  EXPECT_NE(fleet.workers[1]->shutdown->reason.find("60"), std::string::npos);

  FakeFleet empty(SmallJob(1, 1));
  empty.rows[1] = 5;
  empty.AddAll();
  empty.Work(*empty.workers[0]);
  EXPECT_EQ(empty.scheduler.stop_reason().code, ErrorCode::kInvalidArgument);
}

TEST(Phase, ARepeatedLeaseRequestGetsTheSameAnswer) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.rows[0] = 300;
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  LeaseRequest request;
  request.number = 1;
  request.want = 1;
  request.rows[0] = 300;
  worker.number = 1;
  worker.waits = true;
  fleet.Send(worker, request);
  ASSERT_EQ(worker.leases.size(), 1u);
  worker.waits = true;  // as if the reply had been lost
  fleet.Send(worker, request);
  ASSERT_EQ(worker.leases.size(), 2u);
  EXPECT_EQ(worker.leases[0].lease, worker.leases[1].lease);
  request.number = 0;
  fleet.Send(worker, request);  // an old one: ignored
  EXPECT_EQ(worker.leases.size(), 2u);
}

TEST(Phase, LeasesOfOneWorkerAreLimited) {
  Job job = SmallJob(1, 2);
  job.data.split_rows = 10;
  FakeFleet fleet(job);
  fleet.rows[0] = 100000;
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  for (std::uint64_t number = 1; number <= 3; ++number) {
    LeaseRequest request;
    request.number = number;
    request.want = 40;
    request.rows[0] = 100000;
    worker.number = number;
    worker.waits = true;
    fleet.Send(worker, request);
  }
  EXPECT_EQ(worker.leases.size(), 64u);
  EXPECT_FALSE(worker.waits);  // a worker that holds leases is answered at once
  EXPECT_FALSE(worker.jump);
}

}  // namespace
}  // namespace tarn::scheduler

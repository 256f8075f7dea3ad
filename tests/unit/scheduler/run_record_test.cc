// Shows RunRecord alone: earlier starts are added, and which changes make a new revision of the state.
#include "scheduler/run_record.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/formed_fleet.h"
#include "tests/unit/scheduler/memory_store.h"

namespace tarn::scheduler {
namespace {

class RunRecordTest : public testing::Test {
 protected:
  static Job TheJob() {
    Job job;
    job.fleet.workers = 1;
    job.train.batch_rows = 10;
    job.data.split_rows = 30;
    return job;
  }
  RunRecordTest() {
    leases_.Join(worker_, WorkerRank(0), Clock(0));
    EXPECT_TRUE(leases_.SetSizes({60, 0, 0}));
  }

  FormedFleet fleet_{1};
  const Incarnation worker_ = fleet_.Newest();
  Leases leases_{TheJob(), Clock(0)};
  Notes notes_;
  MemoryStore store_;
  Epochs epochs_{{}, {.leases = &leases_, .membership = &fleet_.membership, .notes = &notes_}};
  RunRecord record_{{.job_text = "job",
                     .fingerprint = 6,
                     .run = 7,
                     .epochs = 3,
                     .earlier_samples = 4,
                     .earlier_died = 2,
                     .batches_repeated = 8},
                    {.membership = &fleet_.membership, .leases = &leases_, .epochs = &epochs_}};
  CheckpointCoordinator cuts_{{},
                              {.membership = &fleet_.membership,
                               .leases = &leases_,
                               .store = &store_,
                               .notes = &notes_,
                               .manifests = &record_}};
};

TEST_F(RunRecordTest, EarlierStartsCount) {
  leases_.AnswerTraining(worker_, 1);
  fleet_.Report(worker_, Clock(1), {LeaseId(1), 10});
  fleet_.membership.Fence(worker_);
  record_.OnVerdict({.worker = worker_, .repeated = 1});
  const Progress progress = record_.MakeProgress(0);
  EXPECT_EQ(progress.workers_died, 3u);
  EXPECT_EQ(progress.batches_repeated, 9u);
  EXPECT_EQ(progress.samples_total, 180u);
  EXPECT_EQ(progress.workers_live, 0u);
  EXPECT_EQ(record_.Make({}, true, 0).batches_repeated, 9u);
}

TEST_F(RunRecordTest, ProgressAndManifestAgree) {
  leases_.AnswerTraining(worker_, 1);
  fleet_.Report(worker_, Clock(1), {LeaseId(1), 10});
  const Positions at = fleet_.membership.workers().LivePositions();
  const Manifest manifest = record_.Make(at, true, 0);
  const Progress progress = record_.MakeProgress(0);
  EXPECT_EQ(manifest.job_text, "job");
  EXPECT_EQ(manifest.fingerprint, 6u);
  EXPECT_EQ(manifest.samples, 10u);
  EXPECT_EQ(progress.samples, 10u);
  EXPECT_EQ(progress.samples_here, 6u);
  ASSERT_EQ(progress.workers.size(), 1u);
  EXPECT_EQ(progress.workers[0].acked_clock, Clock(1));
  const SchedulerState state = record_.MakeState(0);
  EXPECT_EQ(state.run, 7u);
  EXPECT_EQ(state.last_lease, LeaseId(1));
  EXPECT_EQ(state.version, fleet_.membership.view().version);
}

TEST_F(RunRecordTest, OnlyChangesThatARestartNeedsMakeANewRevision) {
  std::uint64_t last = record_.StateRevision(cuts_);
  const auto changed = [&] { return std::exchange(last, record_.StateRevision(cuts_)) != last; };
  EXPECT_FALSE(changed());
  fleet_.Report(worker_, Clock(4), {});  // clocks are recovered from the logs
  EXPECT_FALSE(changed());
  leases_.AnswerTraining(worker_, 1);
  EXPECT_TRUE(changed());
  fleet_.membership.current_view()->SetOrder({});
  EXPECT_TRUE(changed());
  record_.OnVerdict({.worker = worker_, .repeated = 1});
  EXPECT_TRUE(changed());
}

}  // namespace
}  // namespace tarn::scheduler

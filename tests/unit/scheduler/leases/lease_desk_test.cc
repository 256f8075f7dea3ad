// Shows LeaseDesk alone: which requests are refused, which end the run, and when a request is answered.
#include "scheduler/leases/lease_desk.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tarn::scheduler {
namespace {

constexpr Incarnation kA{1}, kB{2};

class LeaseDeskTest : public testing::Test {
 protected:
  void SetUp() override {
    desk_.leases().Join(kA, WorkerRank(0), Clock(0));
    desk_.leases().Join(kB, WorkerRank(1), Clock(0));
  }
  static Job TheJob() {
    Job job;
    job.fleet.workers = 2;
    job.train.batch_rows = 10;
    job.data.split_rows = 30;
    job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
    return job;
  }
  LeaseDesk::Heard Request(Incarnation worker, std::uint64_t number, std::uint32_t want,
                           std::vector<LeaseDone> done = {}, std::uint64_t rows = 90) {
    LeaseRequest request{.number = number, .want = want, .done = std::move(done), .rows = {rows, 0, 0}};
    return desk_.OnRequest(WorkerRank(0), worker, Clock(4), request);
  }
  std::vector<LeaseDesk::Answer> Answers(LeaseSupply supply = LeaseSupply::kTraining) {
    return desk_.Answers(supply, [](Incarnation) { return true; });
  }

  Notes notes_;
  LeaseDesk desk_{TheJob(), Clock(0), &notes_};
};

TEST_F(LeaseDeskTest, ARepeatedRequestGetsTheSameAnswer) {
  EXPECT_FALSE(Request(kA, 1, 1).reply);
  const auto answers = Answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].worker, kA);
  EXPECT_EQ(answers[0].reply.number, 1u);
  ASSERT_EQ(answers[0].reply.grants.size(), 1u);
  EXPECT_TRUE(Answers().empty());
  const auto again = Request(kA, 1, 1);
  ASSERT_TRUE(again.reply);
  EXPECT_EQ(again.reply->grants[0].lease, answers[0].reply.grants[0].lease);
  EXPECT_EQ(desk_.leases().last_lease(), LeaseId(1));
}

TEST_F(LeaseDeskTest, TheAnswerDependsOnTheSupply) {
  Request(kA, 1, 1);
  EXPECT_TRUE(Answers(LeaseSupply::kNone).empty());
  EXPECT_TRUE(Answers(LeaseSupply::kJumps).empty());  // the worker is at the ceiling
  EXPECT_TRUE(Answers(LeaseSupply::kFinished).at(0).reply.finished);
  Request(kA, 2, 0);
  EXPECT_EQ(Answers(LeaseSupply::kNone).size(), 1u);  // the worker requested no lease
}

TEST_F(LeaseDeskTest, AWorkerThatHoldsLeasesIsAnsweredAtOnce) {
  Request(kA, 1, 2);
  Request(kB, 1, 2);
  ASSERT_EQ(Answers().size(), 2u);  // all three splits are leased
  Request(kA, 2, 1);
  const auto answers = Answers(LeaseSupply::kNone);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].reply.grants.empty());
}

TEST_F(LeaseDeskTest, OnlyLiveWorkersAreAnswered) {
  Request(kA, 1, 1);
  Request(kB, 1, 1);
  const auto answers = desk_.Answers(LeaseSupply::kTraining, [](Incarnation worker) { return worker == kB; });
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].worker, kB);
  desk_.End(kA, {}, Clock(0), false);
  EXPECT_TRUE(Answers().empty());
}

TEST_F(LeaseDeskTest, WorkersMustReportTheSameDataAndTrainingRows) {
  LeaseRequest nothing{.number = 1, .want = 1, .done = {}, .rows = {0, 7, 0}};
  EXPECT_TRUE(desk_.OnRequest(WorkerRank(0), kA, Clock(0), nothing).ends_run);
  EXPECT_FALSE(Request(kA, 1, 1).ends_run);
  const auto other = Request(kB, 1, 1, {}, 91);
  EXPECT_FALSE(other.ends_run);
  ASSERT_TRUE(other.refuses);
  EXPECT_EQ(other.refuses->code, ErrorCode::kInvalidArgument);
}

TEST_F(LeaseDeskTest, ALossThatIsNotFiniteEndsTheRun) {
  Request(kA, 1, 2);
  Answers();
  LeaseDone fine{.lease = LeaseId(1)}, diverged{.lease = LeaseId(2)};
  diverged.quality.loss_sum = std::nan("");
  const auto heard = Request(kA, 2, 1, {fine, diverged});
  ASSERT_TRUE(heard.ends_run);
  EXPECT_EQ(heard.ends_run->code, ErrorCode::kDiverged);
  EXPECT_TRUE(heard.ends_run->message.starts_with("worker 0: training has diverged by clock 4"));
}

TEST_F(LeaseDeskTest, AFleetTooLargeForTheDataIsWarnedOf) {
  Request(kA, 1, 1, {}, 30);
  const auto notes = notes_.Take();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].warning);
  EXPECT_TRUE(notes[0].text.starts_with("the training set has 30 rows in 1 split of 30 rows, for 2 workers"));
}

}  // namespace
}  // namespace tarn::scheduler

// Shows Epochs alone: phases, the best epoch and its checkpoint, and the end, with leases and a fleet that the test
// drives.
#include "scheduler/epochs/epochs.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/formed_fleet.h"

namespace tarn::scheduler {
namespace {

class EpochsTest : public testing::Test {
 protected:
  static Job TheJob() {
    Job job;
    job.fleet.workers = 1;
    job.train.batch_rows = 10;
    job.data.split_rows = 30;
    return job;
  }
  static Epochs::Options OptionsOf(std::uint32_t epochs, Durability durability) {
    Epochs::Options options;
    options.train.epochs = epochs;
    options.storage.durability = durability;
    return options;
  }
  Epochs Make(Epochs::Options options, std::uint64_t valid_rows = 20) {
    leases_.Join(worker_, WorkerRank(0), Clock(0));
    EXPECT_TRUE(leases_.SetSizes({30, valid_rows, 0}));
    return Epochs(std::move(options), {.leases = &leases_, .membership = &fleet_.membership, .notes = &notes_});
  }
  // Reports all splits of the current pass done, with this loss a row, and acknowledges all clocks up to the ceiling.
  void Work(LeaseSupply supply, double loss) {
    for (bool again = true; again;) {
      const auto reply = supply == LeaseSupply::kTraining ? leases_.AnswerTraining(worker_, 10)
                                                          : leases_.AnswerEvaluation(worker_, 10);
      again = reply.has_value();
      if (!reply) break;
      for (const LeaseGrant& grant : reply->grants) {
        LeaseDone done{.lease = grant.lease};
        done.quality.rows = grant.rows;
        done.quality.loss_sum = loss * static_cast<double>(grant.rows);
        leases_.Done(worker_, done);
      }
    }
    fleet_.Report(worker_, leases_.ceiling());
  }
  // Trains and validates an epoch. Returns the step that scores it.
  Epochs::Step Score(Epochs* epochs, double loss) {
    Work(LeaseSupply::kTraining, 1);
    EXPECT_TRUE(epochs->Advance({}).changed);
    EXPECT_EQ(epochs->phase(), Phase::kValidate);
    EXPECT_EQ(epochs->supply(), LeaseSupply::kEvaluation);
    EXPECT_FALSE(epochs->Advance({}).changed);
    Work(LeaseSupply::kEvaluation, loss);
    return epochs->Advance({});
  }

  FormedFleet fleet_{1};
  const Incarnation worker_ = fleet_.Newest();
  Leases leases_{TheJob(), Clock(0)};
  Notes notes_;
};

TEST_F(EpochsTest, ARunTrainsScoresAndLeaves) {
  Epochs epochs = Make(OptionsOf(2, Durability::kNone));
  EXPECT_EQ(epochs.supply(), LeaseSupply::kJumps);
  EXPECT_FALSE(epochs.Advance({}).changed);  // the fleet is not complete
  epochs.Begin();
  EXPECT_FALSE(epochs.Advance({}).changed);
  EXPECT_FALSE(epochs.AtBoundary());
  EXPECT_FALSE(Score(&epochs, 0.5).cut);
  EXPECT_EQ(notes_.Take().back().text, "epoch 1: train log-loss 1.00000, validation log-loss 0.50000, the best so far")
      << "the leases report no logits, so there is no AUC";
  EXPECT_EQ(epochs.phase(), Phase::kTrain);
  EXPECT_EQ(leases_.epoch(), 1u);
  const Epochs::Step step = Score(&epochs, 0.7);
  EXPECT_EQ(step.cut, CutReason::kHash);
  EXPECT_EQ(epochs.phase(), Phase::kFinalCheckpoint);
  EXPECT_FALSE(epochs.Advance({.cut_under_way = true}).changed);
  EXPECT_TRUE(epochs.Advance({}).changed);
  EXPECT_EQ(epochs.supply(), LeaseSupply::kFinished);
  EXPECT_FALSE(epochs.Advance({}).changed);
  fleet_.membership.OnLeave(worker_, Leave{});
  const Epochs::Step last = epochs.Advance({});
  ASSERT_TRUE(last.end);
  EXPECT_EQ(last.end->code, ErrorCode::kOk);
}

TEST_F(EpochsTest, ScoringWaitsForTheCeilingAndForACutUnderWay) {
  Epochs epochs = Make(OptionsOf(1, Durability::kNone));
  epochs.Begin();
  Work(LeaseSupply::kTraining, 1);
  EXPECT_FALSE(epochs.Advance({.cut_under_way = true}).changed);
  leases_.RaiseCeiling(leases_.ceiling() + 1);
  EXPECT_FALSE(epochs.Advance({}).changed);
  fleet_.Report(worker_, leases_.ceiling());
  EXPECT_TRUE(epochs.Advance({}).changed);
}

TEST_F(EpochsTest, TheBestEpochIsKept) {
  Epochs epochs = Make(OptionsOf(2, Durability::kCheckpoint));
  epochs.Begin();
  EXPECT_EQ(Score(&epochs, 0.5).cut, CutReason::kBest);
  EXPECT_TRUE(epochs.best_wanted());
  EXPECT_FALSE(epochs.Advance({.cut_under_way = true}).changed);
  EXPECT_TRUE(epochs.Advance({}).changed);
  EXPECT_EQ(epochs.phase(), Phase::kTrain);
  EXPECT_EQ(Score(&epochs, 0.7).cut, CutReason::kFinal);
}

// Also if the run stops before the next step.
TEST_F(EpochsTest, ABestCheckpointIsNotMissingOnceASecondAttemptSucceeds) {
  Epochs epochs = Make(OptionsOf(2, Durability::kCheckpoint));
  epochs.Begin();
  Score(&epochs, 0.5);
  epochs.OnBestFailed(100, "");
  EXPECT_EQ(epochs.Advance({.now = 100 + BestCheckpoint::kPauseUs}).cut, CutReason::kBest);
  epochs.OnBestWhole();
  EXPECT_FALSE(epochs.best().missing());
}

TEST_F(EpochsTest, ABestCheckpointIsTriedThreeTimesWithPauses) {
  Epochs epochs = Make(OptionsOf(2, Durability::kCheckpoint));
  epochs.Begin();
  Score(&epochs, 0.5);
  notes_.Take();
  TimeUs now = 100;
  EXPECT_TRUE(epochs.best().missing()) << "until an attempt succeeds";
  for (int i = 1; i < BestCheckpoint::kTriesMax; ++i) {
    epochs.OnBestFailed(now, "");
    EXPECT_TRUE(epochs.best().missing());
    EXPECT_FALSE(epochs.Advance({.now = now + BestCheckpoint::kPauseUs - 1}).changed);
    now += BestCheckpoint::kPauseUs;
    EXPECT_EQ(epochs.Advance({.now = now}).cut, CutReason::kBest);
    EXPECT_TRUE(notes_.Take().empty());
  }
  epochs.OnBestFailed(now, "dir/ckpt-1");
  EXPECT_TRUE(epochs.best().missing());
  EXPECT_TRUE(notes_.Take().at(0).text.ends_with("the best existing checkpoint is an earlier one, dir/ckpt-1"));
  EXPECT_TRUE(epochs.Advance({.now = now}).changed);
  EXPECT_EQ(epochs.phase(), Phase::kTrain);
  epochs.OnBestWhole();
  EXPECT_FALSE(epochs.best().missing());
}

TEST_F(EpochsTest, ARunResumedAtTheEndOfItsLastEpochWritesTheMissingCheckpoint) {
  for (const bool best_wanted : {true, false}) {
    Leases leases(TheJob(), Clock(0));
    DataState data;
    data.rows[0] = data.split_rows = 30;
    data.trained = {30};
    leases.Resume(data);
    Epochs::Options options = OptionsOf(1, Durability::kCheckpoint);
    options.finished.emplace_back();
    options.best_wanted = best_wanted;
    Epochs epochs(std::move(options), {.leases = &leases, .membership = &fleet_.membership, .notes = &notes_});
    epochs.Begin();
    EXPECT_EQ(epochs.Advance({}).cut, best_wanted ? CutReason::kBest : CutReason::kFinal);
  }
}

TEST_F(EpochsTest, AnOverflowOfLossesEndsTheRunAsDiverged) {
  Epochs epochs = Make(OptionsOf(2, Durability::kNone), 0);
  epochs.Begin();
  Work(LeaseSupply::kTraining, 1e308);
  const Epochs::Step step = epochs.Advance({});
  ASSERT_TRUE(step.end);
  EXPECT_EQ(step.end->code, ErrorCode::kDiverged);
}

TEST(Schedule, PatienceCountsEpochsSinceTheBest) {
  TrainSection train;
  train.epochs = 10;
  train.patience = 2;
  Schedule schedule(train, {});
  const auto finish = [&](double loss) {
    schedule.BeginScoring(static_cast<std::uint32_t>(schedule.finished().size()), {});
    schedule.SetValidation({.rows = 1, .log_loss = loss});
    schedule.EndScoring();
  };
  finish(0.5);
  EXPECT_TRUE(schedule.finished().back().best);
  finish(0.6);
  EXPECT_TRUE(schedule.HasNextEpoch());
  finish(0.55);
  EXPECT_FALSE(schedule.HasNextEpoch());
  EXPECT_TRUE(schedule.Finished(2));
  EXPECT_FALSE(schedule.Finished(3));
}

}  // namespace
}  // namespace tarn::scheduler

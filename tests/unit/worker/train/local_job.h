// A job of one worker over a LocalFleet, with small data whose label is determined by the first key of a row.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/unit/worker/data/temp_dir.h"
#include "tests/unit/worker/train/local_fleet.h"
#include "worker/train/trainer.h"

namespace tarn::testing {

inline constexpr std::size_t kTrainRows = 70, kScoredRows = 30;

struct LocalJob {
  TempDir dir;
  Job job;
  std::size_t device_plan_keys_min = worker::BatchPlannerOptions::kDeviceKeysMin;

  // `contrary`: the validation set contradicts the training set, so that each epoch is worse than the previous one.
  explicit LocalJob(bool contrary) {
    dir.Write("train", Rows(kTrainRows, false));
    dir.Write("valid", Rows(kScoredRows, contrary));
    dir.Write("test", Rows(kScoredRows, false));
    std::filesystem::create_directory(dir.path() + "/logs");
    job.job.name = "local";
    job.fleet.servers = 1;
    job.fleet.shards = 2;
    job.fleet.workers = 1;
    job.fleet.partition_bits = 3;
    job.fleet.heartbeat_seconds = 0.02;
    job.fleet.lease_seconds = 3000;
    job.data.dir = dir.path();
    job.data.format = DataFormat::kLibsvm;
    job.data.train = "train";
    job.data.valid = "valid";
    job.data.test = "test";
    job.data.split_rows = 16;
    job.train.batch_rows = 8;
    job.train.epochs = 10;
    job.train.patience = 1;
    job.optimizer.linear.learning_rate = 0.5f;
  }

  worker::TrainerOptions Options() const {
    return {.scheduler = "local",
            .nonce = 7,
            .run_dir = dir.path(),
            .pipeline = {.device_plan_keys_min = device_plan_keys_min}};
  }

  static std::string Rows(std::size_t rows, bool opposite) {
    std::string text;
    for (std::size_t i = 0; i < rows; ++i) {
      const bool positive = i % 3 == 0;
      text += positive != opposite ? "1 " : "0 ";
      text += (positive ? "1 " : "2 ") + std::to_string(10 + i % 7) + "\n";
    }
    return text;
  }
};

// The result of a whole run.
inline scheduler::Progress RunToTheEnd(const LocalJob& scene) {
  LocalFleet fleet(scene.job);
  worker::Trainer trainer(scene.Options(), &fleet);
  EXPECT_EQ(trainer.Run(), worker::TrainerEnd::kDone) << ToString(trainer.error());
  EXPECT_TRUE(fleet.Settle());
  return fleet.scheduler().progress();
}

}  // namespace tarn::testing

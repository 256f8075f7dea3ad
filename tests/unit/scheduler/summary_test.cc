// Shows that metrics lines and summary.json are JSON with the names that readers expect.
#include "scheduler/summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tarn::scheduler {
namespace {

Progress SomeProgress() {
  Progress p;
  p.phase = "done";
  p.samples = 1000;
  p.samples_total = 2000;
  p.seconds = 5;
  p.train_seconds = 4;
  p.staleness = {6, 0, 2};
  p.counters = {{"pull_bytes", 100}, {"push_bytes", 50}, {"stage.read_seconds", 1.5}, {"server.pulls", 3}};
  EpochResult first, second;
  first.train.log_loss = 0.6;
  first.valid = Scores{.rows = 10, .log_loss = 0.5, .auc = 0.7};
  first.test = Scores{.rows = 12, .log_loss = 0.55, .auc = 0.69, .accuracy = 0.9};
  first.best = true;
  second.epoch = 1;
  second.train.log_loss = 0.4;
  second.valid = Scores{.rows = 10, .log_loss = 0.8, .auc = 0.6};
  p.epochs = {first, second};
  p.state_hash = 0xabc;
  p.has_state_hash = true;
  return p;
}

TEST(Summary, HasAllThatReadersExpect) {
  Job job;
  job.job.name = "flights";
  job.consistency = {.mode = ConsistencyMode::kSsp, .staleness = 4, .apply = ApplyMode::kImmediate};
  const auto json = nlohmann::json::parse(SummaryJson(job, SomeProgress(), {ErrorCode::kOk, "done"}));
  for (const char* key : {"job",
                          "status",
                          "mode",
                          "staleness_bound",
                          "servers",
                          "shards",
                          "workers",
                          "samples",
                          "seconds",
                          "samples_per_second",
                          "train_logloss",
                          "eval_auc",
                          "eval_logloss",
                          "eval_accuracy",
                          "eval_normalized_entropy",
                          "staleness_mean",
                          "staleness_max",
                          "staleness_histogram",
                          "pull_bytes",
                          "push_bytes",
                          "parameters_hash",
                          "epochs",
                          "best_epoch",
                          "stages",
                          "workers_died",
                          "batches_repeated",
                          "reason",
                          "checkpoint"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["staleness_bound"], 4);
  EXPECT_EQ(json["samples_per_second"], 250.0);
  EXPECT_EQ(json["train_logloss"], 0.4);
  EXPECT_EQ(json["eval_auc"], 0.69);  // of the best epoch's test set
  EXPECT_EQ(json["best_epoch"], 0);
  EXPECT_EQ(json["staleness_mean"], 0.5);
  EXPECT_EQ(json["staleness_max"], 2);
  EXPECT_EQ(json["staleness_histogram"].dump(), "[[0,6],[2,2]]");
  EXPECT_EQ(json["parameters_hash"], "0000000000000abc");
  EXPECT_EQ(json["stages"]["read"], 1.5);
  EXPECT_EQ(json["epochs"][1]["valid"]["logloss"], 0.8);
}

TEST(Summary, OfARunThatDidNothing) {
  const auto json = nlohmann::json::parse(SummaryJson(Job{}, Progress{}, {ErrorCode::kIo, "disk full"}));
  EXPECT_TRUE(json["eval_auc"].is_null());
  EXPECT_TRUE(json["train_logloss"].is_null());
  EXPECT_TRUE(json["parameters_hash"].is_null());
  EXPECT_EQ(json["samples_per_second"], 0.0);
  EXPECT_EQ(json["reason"], "disk full");
}

TEST(MetricsLine, ShowsProgressAndRate) {
  Progress p = SomeProgress();
  p.phase = "train";
  Rate rate;
  p.samples = 500;
  rate.Add(10, p);
  p.samples = 1000;
  rate.Add(12, p);
  EXPECT_EQ(rate.per_second(), 250);
  const std::string line = MetricsLine(Job{}, p, rate, 1700000000.5);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["role"], "scheduler");
  EXPECT_EQ(json["state"], "train");
  EXPECT_EQ(json["time"], 1700000000.5);
  EXPECT_EQ(json["progress"], 0.5);
  EXPECT_EQ(json["eta_seconds"], 4.0);
  EXPECT_EQ(json["pull_bytes"], 100);
  p.phase = "validate";
  rate.Add(13, p);
  EXPECT_EQ(rate.per_second(), 0);
}

}  // namespace
}  // namespace tarn::scheduler

// Shows that metrics lines and summary.json are JSON with the names that readers expect.
#include "scheduler/progress/summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/progress/worker_lines.h"

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
  p.delay = {1, 3};
  p.counters = {{"pull_bytes", 100}, {"push_bytes", 50}, {"stage_seconds.read", 1.5}, {"cpu_seconds.loop", 2.5}};
  p.shard_counters = {{"rows_not_finite", 7}, {"gradients_discarded", 5}, {"rows_refused", 3}};
  EpochResult first, second;
  first.train = {.rows = 20, .log_loss = 0.6, .auc = 0.65};
  first.valid = Scores{.rows = 10, .log_loss = 0.5, .auc = 0.7};
  first.test = Scores{.rows = 12, .log_loss = 0.55, .auc = 0.69, .accuracy = 0.9};
  first.best = true;
  second.epoch = 1;
  second.train = {.rows = 20, .log_loss = 0.4};
  second.valid = Scores{.rows = 10, .log_loss = 0.8, .auc = 0.6};
  p.epochs = {first, second};
  p.state_hash = 0xabc;
  p.has_state_hash = true;
  return p;
}

TEST(Summary, HasAllNamesThatReadersExpect) {
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
                          "gradient_delay_mean",
                          "gradient_delay_max",
                          "pull_bytes",
                          "push_bytes",
                          "cache_rows",
                          "cache_hits",
                          "hot_rows",
                          "hot_hits",
                          "combined_pushes",
                          "batches_passed_over",
                          "malformed_lines",
                          "rows_not_finite",
                          "parameters_hash",
                          "epochs",
                          "best_epoch",
                          "stage_seconds",
                          "cpu_seconds",
                          "workers_died",
                          "batches_repeated",
                          "reason",
                          "checkpoint"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["staleness_bound"], 4);
  EXPECT_EQ(json["samples_per_second"], 250.0);
  EXPECT_EQ(json["train_logloss"], 0.6);  // of the best epoch, like eval_*
  EXPECT_EQ(json["eval_auc"], 0.69);      // of the best epoch's test set
  EXPECT_EQ(json["best_epoch"], 1);
  EXPECT_EQ(json["staleness_mean"], 0.5);
  EXPECT_EQ(json["staleness_max"], 2);
  EXPECT_EQ(json["staleness_histogram"].dump(), "[[0,6],[2,2]]");
  EXPECT_EQ(json["gradient_delay_mean"], 0.75);
  EXPECT_EQ(json["gradient_delay_max"], 1);
  EXPECT_EQ(json["gradient_delay_histogram"].dump(), "[[0,1],[1,3]]");
  EXPECT_EQ(json["parameters_hash"], "0000000000000abc");
  EXPECT_EQ(json["stage_seconds"].dump(), R"({"read":1.5})");
  EXPECT_EQ(json["cpu_seconds"].dump(), R"({"loop":2.5})");
  EXPECT_EQ(json["pull_bytes"].dump(), "100") << "a whole number";
  EXPECT_EQ(json["rows_not_finite"], 7);
  EXPECT_EQ(json["gradients_discarded"], 5);
  EXPECT_FALSE(json.contains("rows_refused")) << "not summed";
  EXPECT_EQ(json["epochs"][1]["epoch"], 2);
  EXPECT_EQ(json["epochs"][1]["valid"]["logloss"], 0.8);
}

TEST(Summary, ARunThatDidNothingHasASummary) {
  const auto json = nlohmann::json::parse(SummaryJson(Job{}, Progress{}, {ErrorCode::kIo, "disk full"}));
  EXPECT_TRUE(json["eval_auc"].is_null());
  EXPECT_TRUE(json["train_logloss"].is_null());
  EXPECT_TRUE(json["parameters_hash"].is_null());
  EXPECT_EQ(json["samples_per_second"], 0.0);
  EXPECT_EQ(json["reason"], "disk full");
}

TEST(Summary, APredictorOfClassesHasNoAuc) {
  for (const ModelKind kind : {ModelKind::kFm, ModelKind::kMlp}) {
    Job job;
    job.model.kind = kind;
    Progress p = SomeProgress();
    p.train.AddBinary(1, true);
    const bool has_auc = kind == ModelKind::kFm;
    const auto json = nlohmann::json::parse(SummaryJson(job, p, {ErrorCode::kOk, "finished"}));
    EXPECT_EQ(json["eval_auc"].is_null(), !has_auc);
    EXPECT_EQ(json["eval_normalized_entropy"].is_null(), !has_auc);
    EXPECT_EQ(json["epochs"][0]["valid"].contains("auc"), has_auc);
    EXPECT_EQ(json["epochs"][0]["train"].contains("normalized_entropy"), has_auc);
    const auto line = nlohmann::json::parse(MetricsLine(p, SchedulerMetrics(job, p, Rate()), 0));
    EXPECT_EQ(line.contains("auc"), has_auc);
    EXPECT_EQ(line.contains("valid_auc"), has_auc);
    EXPECT_TRUE(line.contains("loss"));
  }
}

// Their leases have rows and losses, but no logits and no number of right rows.
TEST(Summary, ProgramsThatReportOnlyLossesHaveNoAuc) {
  Quality losses;
  losses.rows = 10;
  losses.loss_sum = 4;
  Progress p;
  p.phase = "train";
  p.train = losses;
  p.epochs.push_back({.epoch = 0, .train = ScoresOf(losses), .valid = ScoresOf(losses), .test = {}, .best = true});
  const auto summary = nlohmann::json::parse(SummaryJson(Job{}, p, {ErrorCode::kOk, "done"}));
  EXPECT_EQ(summary["epochs"][0]["valid"].dump(), R"({"logloss":0.4,"rows":10})");
  EXPECT_EQ(summary["eval_logloss"], 0.4);
  for (const char* key : {"eval_auc", "eval_accuracy", "eval_normalized_entropy"})
    EXPECT_TRUE(summary.at(key).is_null()) << key;
  const auto line = nlohmann::json::parse(MetricsLine(p, SchedulerMetrics(Job{}, p, Rate()), 0));
  EXPECT_EQ(line["loss"], 0.4);
  EXPECT_EQ(line["valid_logloss"], 0.4);
  EXPECT_FALSE(line.contains("auc"));
  EXPECT_FALSE(line.contains("valid_auc"));
}

TEST(Summary, AnEvaluationWithoutRowsHasNoScores) {
  Progress p;
  p.epochs.push_back({.epoch = 0, .train = {}, .valid = ScoresOf({}), .test = {}, .best = true});
  const auto json = nlohmann::json::parse(SummaryJson(Job{}, p, {ErrorCode::kOk, "done"}));
  EXPECT_EQ(json["epochs"][0]["valid"].dump(), R"({"rows":0})");
  for (const char* key : {"eval_auc", "eval_logloss", "eval_accuracy", "eval_normalized_entropy"})
    EXPECT_TRUE(json.at(key).is_null()) << key;
}

TEST(Summary, ARunStoppedInItsFirstEpochReportsTheLossSoFar) {
  auto loss = [](const Progress& p) {
    return nlohmann::json::parse(SummaryJson(Job{}, p, {ErrorCode::kOk, "stopped"}))["train_logloss"];
  };
  Progress p;
  EXPECT_TRUE(loss(p).is_null());
  p.counters = {{"loss_sum", 3.0}, {"loss_rows", 4.0}};  // before the first lease is reported done
  EXPECT_EQ(loss(p), 0.75);
  p.train.rows = 10;  // rows of leases that are done
  p.train.loss_sum = 5;
  EXPECT_EQ(loss(p), 0.5);
  p.epochs.emplace_back().best = true;  // all its batches were skipped, so it has no score
  EXPECT_TRUE(loss(p).is_null());
}

WorkerProgress SomeWorker(double samples, double loss_sum, double waiting, std::vector<std::uint64_t> staleness) {
  WorkerProgress worker;
  worker.rank = WorkerRank(3);
  worker.incarnation = Incarnation(9);
  worker.clock = Clock(12);
  worker.acked_clock = Clock(11);
  worker.counters = {{"samples", samples},
                     {"loss_sum", loss_sum},
                     {"loss_rows", samples},
                     {"stage_seconds.pull", waiting / 2},
                     {"stage_seconds.wait", waiting / 2},
                     {"pull_bytes", 77},
                     {"residual_rows", 5}};
  worker.staleness = std::move(staleness);
  return worker;
}

TEST(WorkerLines, ReportEachWorkersWorkSinceThePreviousLine) {
  WorkerLines lines;
  Progress p;
  p.phase = "train";
  p.workers = {SomeWorker(100, 70, 0.5, {4})};
  auto first = lines.Make(p, 50);
  ASSERT_EQ(first.size(), 1u);
  auto json = nlohmann::json::parse(first[0]);
  EXPECT_EQ(json["role"], "worker");
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["incarnation"], 9);
  EXPECT_EQ(json["clock"], 12);
  EXPECT_EQ(json["acked_clock"], 11);
  EXPECT_EQ(json["samples"], 100);
  EXPECT_EQ(json["pull_bytes"], 77);
  EXPECT_EQ(json["residual_rows"], 5);
  EXPECT_EQ(json["stage_seconds"].dump(), R"({"pull":0.25,"wait":0.25})");
  EXPECT_FALSE(json.contains("samples_per_second"));
  p.workers = {SomeWorker(300, 170, 1.5, {4, 1, 3})};
  json = nlohmann::json::parse(lines.Make(p, 54)[0]);
  EXPECT_EQ(json["samples_per_second"], 50.0);
  EXPECT_EQ(json["loss"], 0.5);
  EXPECT_EQ(json["waiting_share"], 0.25);
  EXPECT_EQ(json["staleness_mean"], 1.75);
  EXPECT_EQ(json["staleness_max"], 2);
  json = nlohmann::json::parse(lines.Make(p, 55)[0]);  // no work since the previous line
  EXPECT_FALSE(json.contains("loss"));
  EXPECT_FALSE(json.contains("staleness_mean"));
  p.workers.clear();
  EXPECT_TRUE(lines.Make(p, 56).empty());
  p.workers = {SomeWorker(10, 7, 0, {1})};  // another start of the process
  EXPECT_FALSE(nlohmann::json::parse(lines.Make(p, 57)[0]).contains("samples_per_second"));
}

// The first batches are slow, and no worker trains before them.
TEST(Rate, EstimatesTheDurationOnlyOnceItIsKnown) {
  Progress p = SomeProgress();
  p.phase = "train";
  Rate rate;
  const auto add = [&](double time_seconds, std::uint64_t samples) {
    p.samples = samples;
    rate.Add(time_seconds, p);
  };
  for (int second = 0; second <= 20; ++second) add(second, 0);
  add(21, 1);
  EXPECT_EQ(rate.per_second(), 1);
  EXPECT_EQ(rate.lasting_per_second(), 0);
  EXPECT_FALSE(nlohmann::json::parse(MetricsLine(p, SchedulerMetrics(Job{}, p, rate), 0)).contains("eta_seconds"));
  add(22, 101);
  add(23, 201);
  EXPECT_EQ(rate.lasting_per_second(), 0);
  add(24, 301);
  EXPECT_EQ(rate.lasting_per_second(), 301.0 / 4);
  p.phase = "validate";
  add(25, 301);
  p.phase = "train";
  add(26, 301);
  add(27, 500);
  EXPECT_EQ(rate.lasting_per_second(), 500.0 / 5) << "of all training, while the window is short";
}

TEST(MetricsLine, ShowsProgressAndRate) {
  Progress p = SomeProgress();
  p.phase = "train";
  Rate rate;
  p.samples = 500;
  rate.Add(8, p);
  p.samples = 1000;
  rate.Add(12, p);
  EXPECT_EQ(rate.per_second(), 125);
  const std::string line = MetricsLine(p, SchedulerMetrics(Job{}, p, rate), 1700000000.5);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["role"], "scheduler");
  EXPECT_EQ(json["state"], "train");
  EXPECT_EQ(json["epoch"], 1);
  EXPECT_EQ(json["time"], 1700000000.5);
  EXPECT_EQ(json["progress"], 0.5);
  EXPECT_EQ(json["eta_seconds"], 8.0);
  EXPECT_EQ(json["pull_bytes"], 100);
  EXPECT_EQ(json["rows_not_finite"], 7);
  EXPECT_EQ(json["stage_seconds"].dump(), R"({"read":1.5})");
  EXPECT_FALSE(json.contains("staleness_clocks"));
  p.phase = "validate";
  rate.Add(13, p);
  EXPECT_EQ(rate.per_second(), 0);
}

}  // namespace
}  // namespace tarn::scheduler

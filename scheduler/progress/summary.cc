#include "scheduler/progress/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/file.h"
#include "core/json.h"

namespace tarn::scheduler {
namespace {

constexpr double kRateWindowSeconds = 5;
constexpr double kSettledSeconds = 4;  // seconds of a full window, with one point per second
constexpr std::size_t kGenerateBytesMax = 1 << 20;

struct Spread {
  double mean = 0;
  std::uint64_t max = 0;
};

Spread SpreadOf(const std::vector<std::uint64_t>& histogram) {
  Spread out;
  double pulls = 0, sum = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    if (histogram[i] == 0) continue;
    pulls += static_cast<double>(histogram[i]);
    sum += static_cast<double>(histogram[i]) * static_cast<double>(i);
    out.max = i;
  }
  if (pulls > 0) out.mean = sum / pulls;
  return out;
}

double CounterOf(const std::map<std::string, double>& sums, const MetricSpec* metric) {
  const auto it = sums.find(CounterName(metric));
  return it == sums.end() ? 0 : it->second;
}

// Only the known scores. A program that reports only losses has no AUC, and a number of right rows of 0.
Json ScoresJson(const Job& job, const Scores& scores) {
  Json json = Json::object();
  json["rows"] = scores.rows;
  if (scores.rows == 0) return json;
  json["logloss"] = scores.log_loss;
  if (!HasAuc(job) || scores.auc || scores.accuracy > 0) json["accuracy"] = scores.accuracy;
  if (HasAuc(job) && scores.auc) {
    json["auc"] = *scores.auc;
    json["normalized_entropy"] = scores.normalized_entropy;
  }
  return json;
}

Json EpochsJson(const Job& job, const Progress& progress) {
  Json epochs = Json::array();
  for (const EpochResult& epoch : progress.epochs) {
    Json& json = epochs.emplace_back(Json{{"epoch", EpochNumber(epoch.epoch)}, {"best", epoch.best}});
    json["train"] = ScoresJson(job, epoch.train);
    if (epoch.valid) json["valid"] = ScoresJson(job, *epoch.valid);
    if (epoch.test) json["test"] = ScoresJson(job, *epoch.test);
  }
  return epochs;
}

const EpochResult* BestEpoch(const Progress& progress) {
  const EpochResult* best = nullptr;
  for (const EpochResult& epoch : progress.epochs)
    if (epoch.best) best = &epoch;
  return best;
}

// The scores of the best epoch on the test set, or on the validation set if there is no test set.
std::optional<Scores> Evaluation(const Progress& progress) {
  const EpochResult* best = BestEpoch(progress);
  if (best == nullptr) return std::nullopt;
  return best->test ? best->test : best->valid;
}

void WriteEvaluation(Json* json, const Job& job, const Progress& progress) {
  const EpochResult* best = BestEpoch(progress);
  (*json)["best_epoch"] = best == nullptr ? Json() : Json(EpochNumber(best->epoch));
  const auto scores = Evaluation(progress);
  const Json known = scores ? ScoresJson(job, *scores) : Json::object();
  for (const char* key : {"auc", "logloss", "accuracy", "normalized_entropy"})
    (*json)[std::string("eval_") + key] = known.contains(key) ? Json(known.at(key)) : Json();
}

// Writes the best possible AUC and log-loss on the test set (if there is none, on the validation set), if the data
// generator has stored them.
void WriteBestPossible(Json* json, const Job& job) {
  auto text = ReadFile(job.data.dir + "/generate.json", kGenerateBytesMax);
  if (!text) return;
  const auto report = Json::parse(*text, nullptr, false);
  if (!report.is_object() || !report.contains("files") || !report["files"].is_object()) return;
  for (const std::string& name : {job.data.test, job.data.valid}) {
    if (name.empty() || !report["files"].contains(name)) continue;
    const auto& file = report["files"][name];
    for (const char* key : {"auc", "logloss"}) {
      const std::string from = std::string("best_") + key;
      if (file.contains(from) && file[from].is_number())
        (*json)[std::string("best_possible_") + key] = file[from].get<double>();
    }
    return;
  }
}

// NAME_mean, NAME_max and NAME_histogram.
void WriteHistogram(Json* json, const std::string& name, const std::vector<std::uint64_t>& buckets) {
  const Spread spread = SpreadOf(buckets);
  (*json)[name + "_mean"] = spread.mean;
  (*json)[name + "_max"] = spread.max;
  Json histogram = Json::array();
  for (std::size_t i = 0; i < buckets.size(); ++i)
    if (buckets[i] != 0) histogram.push_back(Json::array({i, buckets[i]}));
  (*json)[name + "_histogram"] = std::move(histogram);
}

// The training log-loss of the best epoch, the epoch of the evaluation. Before there is one: that of the leases done in
// this epoch; if there are none, that of the counters of workers.
std::optional<double> TrainLogLoss(const Progress& progress) {
  if (const EpochResult* best = BestEpoch(progress))
    return best->train.rows > 0 ? std::optional(best->train.log_loss) : std::nullopt;
  if (progress.train.rows > 0) return progress.train.LogLoss();
  const double rows = CounterOf(progress.counters, WorkerMetric("loss_rows"));
  return rows > 0 ? std::optional(CounterOf(progress.counters, WorkerMetric("loss_sum")) / rows) : std::nullopt;
}

Json BoundOf(const ConsistencySpec& consistency) {
  switch (consistency.mode) {
    case ConsistencyMode::kBsp:
    case ConsistencyMode::kSsp: return StalenessBound(consistency);
    case ConsistencyMode::kAsp: break;
  }
  return nullptr;
}

// Whether best_checkpoint belongs to the best epoch. Null if no epoch is the best yet, if the job has no checkpoints,
// or if the run ended before a checkpoint of a best epoch was requested.
Json BestKept(const Job& job, const Progress& progress) {
  if (BestEpoch(progress) == nullptr || job.storage.durability == Durability::kNone ||
      (!progress.best_lost && progress.best_checkpoint.empty()))
    return nullptr;
  return !progress.best_lost;
}

// The metrics that are sums over all workers, or over all shards; 0 if none has reported one.
MetricList SumsOf(const Progress& progress) {
  MetricList list;
  for (const MetricSpec& spec : metrics::kTable) {
    if (spec.shown != MetricShown::kSummed) continue;
    const auto& sums = spec.of == kOfShard ? progress.shard_counters : progress.counters;
    if (spec.label.empty()) {
      list.Add(&spec, MetricValue::OfCounter(CounterOf(sums, &spec)));
      continue;
    }
    std::vector<Counter> counters;
    for (const auto& [name, value] : sums)
      if (name.starts_with(CounterName(&spec))) counters.push_back({name, value});
    list.AddBy(&spec, {}).AddCounters(spec.of, counters);
  }
  return list;
}

}  // namespace

void Rate::Add(double time_seconds, const Progress& progress) {
  // Pauses for evaluation must not reduce the rate.
  if (progress.phase != "train") {
    points_.clear();
    return;
  }
  const Point point{time_seconds, static_cast<double>(progress.samples)};
  // The time in which workers read their first data does not count.
  if (points_.size() == 1 && points_.front().samples == point.samples) points_.clear();
  if (!points_.empty()) {
    seconds_ += point.seconds - points_.back().seconds;
    samples_ += point.samples - points_.back().samples;
  }
  points_.push_back(point);
  while (points_.size() > 2 && points_.front().seconds < time_seconds - kRateWindowSeconds) points_.pop_front();
}

double Rate::per_second() const {
  if (points_.size() < 2) return 0;
  const double seconds = points_.back().seconds - points_.front().seconds;
  return seconds > 0 ? (points_.back().samples - points_.front().samples) / seconds : 0;
}

double Rate::lasting_per_second() const {
  const double window = points_.empty() ? 0 : points_.back().seconds - points_.front().seconds;
  if (window >= kSettledSeconds) return per_second();
  return seconds_ >= kSettledSeconds ? std::max(0.0, samples_ / seconds_) : 0;
}

MetricList SchedulerMetrics(const Job& job, const Progress& progress, const Rate& rate) {
  const Spread staleness = SpreadOf(progress.staleness);
  MetricList list;
  list.Add(SchedulerMetric("epoch"), EpochNumber(progress.epoch));
  list.Add(SchedulerMetric("clock"), progress.min_clock.value);
  list.Add(SchedulerMetric("samples"), progress.samples);
  if (const double per_second = rate.per_second(); per_second > 0)
    list.Add(SchedulerMetric("samples_per_second"), per_second);
  if (progress.train.rows > 0) {
    list.Add(SchedulerMetric("loss"), progress.train.LogLoss());
    if (HasAuc(job) && progress.train.has_logits()) list.Add(SchedulerMetric("auc"), progress.train.Auc());
  }
  list.Add(SchedulerMetric("staleness_mean"), staleness.mean);
  list.Add(SchedulerMetric("staleness_max"), staleness.max);
  const Spread delay = SpreadOf(progress.delay);
  list.Add(SchedulerMetric("gradient_delay_mean"), delay.mean);
  list.Add(SchedulerMetric("gradient_delay_max"), delay.max);
  if (progress.samples_total > 0) {
    const auto total = static_cast<double>(progress.samples_total);
    list.Add(SchedulerMetric("progress"), static_cast<double>(progress.samples) / total);
    if (const double lasting = rate.lasting_per_second(); lasting > 0)
      list.Add(SchedulerMetric("eta_seconds"), (total - static_cast<double>(progress.samples)) / lasting);
  }
  list.Add(SchedulerMetric("workers_live"), progress.workers_live);
  list.Add(SchedulerMetric("workers_died"), progress.workers_died);
  list.Append(SumsOf(progress));
  if (!progress.epochs.empty() && progress.epochs.back().valid) {
    const Scores& valid = *progress.epochs.back().valid;
    if (valid.rows > 0) list.Add(SchedulerMetric("valid_logloss"), valid.log_loss);
    if (HasAuc(job) && valid.auc) list.Add(SchedulerMetric("valid_auc"), *valid.auc);
  }
  list.AddBy(SchedulerMetric("state"), {{progress.phase, 1}});
  list.AddHistogram(SchedulerMetric("staleness_clocks"), progress.staleness);
  list.AddHistogram(SchedulerMetric("gradient_delay_sections"), progress.delay);
  return list;
}

std::string MetricsLine(const Progress& progress, const MetricList& metrics, double time_seconds) {
  Json json = {{"time", time_seconds}, {"role", "scheduler"}, {"state", progress.phase}};
  metrics.WriteTo(&json);
  return JsonText(json);
}

std::string SummaryJson(const Job& job, const Progress& progress, const Shutdown& end) {
  const auto loss = TrainLogLoss(progress);
  const double seconds = progress.train_seconds;
  Json json = {{"job", job.job.name},
               {"status", progress.phase},
               {"reason", end.reason},
               {"model", Name(job.model.kind)},
               {"seed", job.job.seed},
               {"mode", Name(job.consistency.mode)},
               {"apply", Name(job.consistency.apply)},
               {"staleness_bound", BoundOf(job.consistency)},
               {"servers", job.fleet.servers},
               {"shards", job.fleet.shards},
               {"workers", job.fleet.workers},
               {"samples", progress.samples},
               {"seconds", progress.seconds},
               {"train_seconds", seconds},
               {"samples_per_second", seconds > 0 ? static_cast<double>(progress.samples) / seconds : 0.0},
               {"train_logloss", loss ? Json(*loss) : Json()}};
  WriteEvaluation(&json, job, progress);
  WriteBestPossible(&json, job);
  WriteHistogram(&json, "staleness", progress.staleness);
  WriteHistogram(&json, "gradient_delay", progress.delay);
  SumsOf(progress).WriteTo(&json);
  json["parameters_hash"] = progress.has_state_hash ? Json(fmt::format("{:016x}", progress.state_hash)) : Json();
  json.update({{"workers_died", progress.workers_died},
               {"batches_repeated", progress.batches_repeated},
               {"train_rows", progress.rows[0]},
               {"valid_rows", progress.rows[1]},
               {"test_rows", progress.rows[2]},
               {"epochs", EpochsJson(job, progress)},
               {"checkpoint", progress.last_checkpoint},
               {"best_checkpoint", progress.best_checkpoint},
               {"best_kept", BestKept(job, progress)}});
  return JsonText(json, 2) + "\n";
}

}  // namespace tarn::scheduler

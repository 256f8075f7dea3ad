#include "scheduler/progress/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/file.h"
#include "core/json.h"

namespace tarn::scheduler {
namespace {

constexpr double kRateWindowSeconds = 5;
constexpr double kSettledSeconds = 4;  // a window of one point a second that is full
constexpr std::size_t kGenerateBytesMax = 1 << 20;

struct Staleness {
  double mean = 0;
  std::uint64_t max = 0;
};

Staleness StalenessOf(const std::vector<std::uint64_t>& histogram) {
  Staleness out;
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

double CounterOf(const Progress& progress, const std::string& name) {
  auto it = progress.counters.find(name);
  return it == progress.counters.end() ? 0 : it->second;
}

std::uint64_t Whole(double value) { return value > 0 ? static_cast<std::uint64_t>(value) : 0; }

void WriteScores(JsonWriter* json, std::string_view key, const Scores& scores) {
  json->Key(key).BeginObject();
  json->Member("rows", scores.rows).Member("logloss", scores.log_loss).Member("auc", scores.auc);
  json->Member("accuracy", scores.accuracy).Member("normalized_entropy", scores.normalized_entropy).EndObject();
}

void WriteEpochs(JsonWriter* json, const Progress& progress) {
  json->Key("epochs").BeginArray();
  for (const EpochResult& epoch : progress.epochs) {
    json->BeginObject().Member("epoch", EpochNumber(epoch.epoch)).Member("best", epoch.best);
    WriteScores(json, "train", epoch.train);
    if (epoch.valid) WriteScores(json, "valid", *epoch.valid);
    if (epoch.test) WriteScores(json, "test", *epoch.test);
    json->EndObject();
  }
  json->EndArray();
}

const EpochResult* BestEpoch(const Progress& progress) {
  const EpochResult* best = nullptr;
  for (const EpochResult& epoch : progress.epochs)
    if (epoch.best) best = &epoch;
  return best;
}

// The best epoch on the test set, or on the validation set where there is no other.
std::optional<Scores> Evaluation(const Progress& progress) {
  const EpochResult* best = BestEpoch(progress);
  if (best == nullptr) return std::nullopt;
  return best->test ? best->test : best->valid;
}

void WriteEvaluation(JsonWriter* json, const Job& job, const Progress& progress) {
  const EpochResult* best = BestEpoch(progress);
  if (best != nullptr)
    json->Member("best_epoch", EpochNumber(best->epoch));
  else
    json->Key("best_epoch").Null();
  const auto scores = Evaluation(progress);
  for (const char* key : {"eval_auc", "eval_logloss", "eval_accuracy", "eval_normalized_entropy"}) {
    const std::string_view name(key);
    // A classifier of several classes has no AUC.
    const bool binary_only = name == "eval_auc" || name == "eval_normalized_entropy";
    if (!scores || (binary_only && job.data.format == DataFormat::kIdx && job.data.classes > 2)) {
      json->Key(name).Null();
      continue;
    }
    json->Member(name, name == "eval_auc"        ? scores->auc
                       : name == "eval_logloss"  ? scores->log_loss
                       : name == "eval_accuracy" ? scores->accuracy
                                                 : scores->normalized_entropy);
  }
}

// Counters PREFIXNAME_seconds of all workers as an object of NAMEs.
void WriteSeconds(JsonWriter* json, std::string_view key, std::string_view prefix, const Progress& progress) {
  constexpr std::string_view kSuffix = "_seconds";
  json->Key(key).BeginObject();
  for (const auto& [name, value] : progress.counters) {
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) continue;
    json->Member(name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size()), value);
  }
  json->EndObject();
}

// What the data generator says about the best that any model could reach on this set.
void WriteBestPossible(JsonWriter* json, const Job& job) {
  auto text = ReadFile(job.data.dir + "/generate.json", kGenerateBytesMax);
  if (!text) return;
  const auto report = nlohmann::json::parse(*text, nullptr, false);
  if (!report.is_object() || !report.contains("files") || !report["files"].is_object()) return;
  for (const std::string& name : {job.data.test, job.data.valid}) {
    if (name.empty() || !report["files"].contains(name)) continue;
    const auto& file = report["files"][name];
    for (const char* key : {"auc", "logloss"}) {
      const std::string from = std::string("best_") + key;
      if (file.contains(from) && file[from].is_number())
        json->Member(std::string("best_possible_") + key, file[from].get<double>());
    }
    return;
  }
}

void WriteStaleness(JsonWriter* json, const Progress& progress) {
  const Staleness staleness = StalenessOf(progress.staleness);
  json->Member("staleness_mean", staleness.mean).Member("staleness_max", staleness.max);
  json->Key("staleness_histogram").BeginArray();
  for (std::size_t i = 0; i < progress.staleness.size(); ++i)
    if (progress.staleness[i] != 0) json->BeginArray().Value(i).Value(progress.staleness[i]).EndArray();
  json->EndArray();
}

// Of the best epoch, like the evaluation; before one is finished, of what leases and then workers have reported.
std::optional<double> TrainLogLoss(const Progress& progress) {
  if (const EpochResult* best = BestEpoch(progress))
    return best->train.rows > 0 ? std::optional(best->train.log_loss) : std::nullopt;
  if (progress.train.rows > 0) return progress.train.LogLoss();
  const double rows = CounterOf(progress, "loss_rows");
  return rows > 0 ? std::optional(CounterOf(progress, "loss_sum") / rows) : std::nullopt;
}

void WriteBound(JsonWriter* json, const ConsistencySpec& consistency) {
  json->Key("staleness_bound");
  switch (consistency.mode) {
    case ConsistencyMode::kBsp: json->Value(0); break;
    case ConsistencyMode::kSsp: json->Value(consistency.staleness); break;
    case ConsistencyMode::kAsp: json->Null(); break;
  }
}

// What the workers' caches and hot rows have spared: rows looked for there and found, pushes that went along with later
// ones; the batches that were not pushed (rule A4), and the lines that were none.
void WriteSpared(JsonWriter* json, const Progress& progress) {
  for (const char* name : {"cache_rows", "cache_hits", "hot_rows", "hot_hits", "combined_pushes", "batches_passed_over",
                           "malformed_lines"})
    json->Member(name, Whole(CounterOf(progress, name)));
  json->Member("rows_not_finite", Whole(CounterOf(progress, "server.shard_rows_not_finite")));
}

}  // namespace

void Rate::Add(double time_seconds, const Progress& progress) {
  // Pauses for evaluation would make training look slow.
  if (progress.phase != "train") {
    points_.clear();
    return;
  }
  const Point point{time_seconds, static_cast<double>(progress.samples)};
  // While workers read their first data nothing is slow.
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

std::string MetricsLine(const Job& job, const Progress& progress, const Rate& rate, const Refused& refused,
                        double time_seconds) {
  const Staleness staleness = StalenessOf(progress.staleness);
  JsonWriter json;
  json.BeginObject().Member("time", time_seconds).Member("role", "scheduler").Member("state", progress.phase);
  json.Member("epoch", EpochNumber(progress.epoch)).Member("clock", progress.min_clock.value);
  json.Member("samples", progress.samples);
  const double per_second = rate.per_second();
  if (per_second > 0) json.Member("samples_per_second", per_second);
  if (progress.train.rows > 0) {
    json.Member("loss", progress.train.LogLoss());
    if (job.data.format != DataFormat::kIdx) json.Member("auc", progress.train.Auc());
  }
  json.Member("staleness_mean", staleness.mean).Member("staleness_max", staleness.max);
  if (progress.samples_total > 0) {
    const auto total = static_cast<double>(progress.samples_total);
    json.Member("progress", static_cast<double>(progress.samples) / total);
    const double lasting = rate.lasting_per_second();
    if (lasting > 0) json.Member("eta_seconds", (total - static_cast<double>(progress.samples)) / lasting);
  }
  json.Member("workers_live", progress.workers_live).Member("workers_died", progress.workers_died);
  json.Member("pull_bytes", Whole(CounterOf(progress, "pull_bytes")));
  json.Member("push_bytes", Whole(CounterOf(progress, "push_bytes")));
  WriteSpared(&json, progress);
  json.Member("refused_malformed", refused.malformed).Member("refused_too_large", refused.too_large);
  json.Member("refused_version", refused.version).Member("refused_handshakes", refused.handshakes);
  if (!progress.epochs.empty() && progress.epochs.back().valid) {
    json.Member("valid_logloss", progress.epochs.back().valid->log_loss);
    json.Member("valid_auc", progress.epochs.back().valid->auc);
  }
  json.EndObject();
  return json.text();
}

std::string SummaryJson(const Job& job, const Progress& progress, const Shutdown& end) {
  JsonWriter json(2);
  json.BeginObject();
  json.Member("job", job.job.name).Member("status", progress.phase).Member("reason", end.reason);
  json.Member("model", Name(job.model.kind)).Member("seed", job.job.seed);
  json.Member("mode", Name(job.consistency.mode)).Member("apply", Name(job.consistency.apply));
  WriteBound(&json, job.consistency);
  json.Member("servers", job.fleet.servers).Member("shards", job.fleet.shards).Member("workers", job.fleet.workers);
  json.Member("samples", progress.samples).Member("seconds", progress.seconds);
  json.Member("train_seconds", progress.train_seconds);
  json.Member("samples_per_second",
              progress.train_seconds > 0 ? static_cast<double>(progress.samples) / progress.train_seconds : 0.0);
  json.Key("train_logloss");
  if (const auto loss = TrainLogLoss(progress))
    json.Value(*loss);
  else
    json.Null();
  WriteEvaluation(&json, job, progress);
  WriteBestPossible(&json, job);
  WriteStaleness(&json, progress);
  json.Member("pull_bytes", Whole(CounterOf(progress, "pull_bytes")));
  json.Member("push_bytes", Whole(CounterOf(progress, "push_bytes")));
  WriteSpared(&json, progress);
  json.Key("parameters_hash");
  if (progress.has_state_hash)
    json.Value(fmt::format("{:016x}", progress.state_hash));
  else
    json.Null();
  json.Member("workers_died", progress.workers_died).Member("batches_repeated", progress.batches_repeated);
  json.Member("train_rows", progress.rows[0]).Member("valid_rows", progress.rows[1]);
  json.Member("test_rows", progress.rows[2]);
  WriteEpochs(&json, progress);
  WriteSeconds(&json, "stages", "stage.", progress);
  WriteSeconds(&json, "cpu", "cpu.", progress);  // of the workers' training threads
  json.Member("checkpoint", progress.last_checkpoint).Member("best_checkpoint", progress.best_checkpoint);
  json.Key("best_kept");
  if (BestEpoch(progress) == nullptr || job.storage.durability == Durability::kNone ||
      (!progress.best_lost && progress.best_checkpoint.empty()))
    json.Null();  // stopped before its checkpoint was whole, the last one
  else
    json.Value(!progress.best_lost);
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace tarn::scheduler

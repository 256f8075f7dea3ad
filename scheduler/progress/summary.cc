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

Json ScoresJson(const Scores& scores) {
  return {{"rows", scores.rows},
          {"logloss", scores.log_loss},
          {"auc", scores.auc},
          {"accuracy", scores.accuracy},
          {"normalized_entropy", scores.normalized_entropy}};
}

Json EpochsJson(const Progress& progress) {
  Json epochs = Json::array();
  for (const EpochResult& epoch : progress.epochs) {
    Json& json = epochs.emplace_back(Json{{"epoch", EpochNumber(epoch.epoch)}, {"best", epoch.best}});
    json["train"] = ScoresJson(epoch.train);
    if (epoch.valid) json["valid"] = ScoresJson(*epoch.valid);
    if (epoch.test) json["test"] = ScoresJson(*epoch.test);
  }
  return epochs;
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

void WriteEvaluation(Json* json, const Job& job, const Progress& progress) {
  const EpochResult* best = BestEpoch(progress);
  (*json)["best_epoch"] = best == nullptr ? Json() : Json(EpochNumber(best->epoch));
  const auto scores = Evaluation(progress);
  // A classifier of several classes has no AUC.
  const bool binary = job.data.format != DataFormat::kIdx || job.data.classes <= 2;
  (*json)["eval_auc"] = scores && binary ? Json(scores->auc) : Json();
  (*json)["eval_logloss"] = scores ? Json(scores->log_loss) : Json();
  (*json)["eval_accuracy"] = scores ? Json(scores->accuracy) : Json();
  (*json)["eval_normalized_entropy"] = scores && binary ? Json(scores->normalized_entropy) : Json();
}

// Counters PREFIXNAME_seconds of all workers as an object of NAMEs.
Json SecondsJson(std::string_view prefix, const Progress& progress) {
  constexpr std::string_view kSuffix = "_seconds";
  Json json = Json::object();
  for (const auto& [name, value] : progress.counters) {
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) continue;
    json[name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size())] = value;
  }
  return json;
}

// What the data generator says about the best that any model could reach on this set.
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

void WriteStaleness(Json* json, const Progress& progress) {
  const Staleness staleness = StalenessOf(progress.staleness);
  (*json)["staleness_mean"] = staleness.mean;
  (*json)["staleness_max"] = staleness.max;
  Json histogram = Json::array();
  for (std::size_t i = 0; i < progress.staleness.size(); ++i)
    if (progress.staleness[i] != 0) histogram.push_back(Json::array({i, progress.staleness[i]}));
  (*json)["staleness_histogram"] = std::move(histogram);
}

// Of the best epoch, like the evaluation; before one is finished, of what leases and then workers have reported.
std::optional<double> TrainLogLoss(const Progress& progress) {
  if (const EpochResult* best = BestEpoch(progress))
    return best->train.rows > 0 ? std::optional(best->train.log_loss) : std::nullopt;
  if (progress.train.rows > 0) return progress.train.LogLoss();
  const double rows = CounterOf(progress, "loss_rows");
  return rows > 0 ? std::optional(CounterOf(progress, "loss_sum") / rows) : std::nullopt;
}

Json BoundOf(const ConsistencySpec& consistency) {
  switch (consistency.mode) {
    case ConsistencyMode::kBsp: return 0;
    case ConsistencyMode::kSsp: return consistency.staleness;
    case ConsistencyMode::kAsp: break;
  }
  return nullptr;
}

// Null before the first epoch is finished, without checkpoints, and where the job stopped before its last checkpoint
// was whole.
Json BestKept(const Job& job, const Progress& progress) {
  if (BestEpoch(progress) == nullptr || job.storage.durability == Durability::kNone ||
      (!progress.best_lost && progress.best_checkpoint.empty()))
    return nullptr;
  return !progress.best_lost;
}

// Counters of all workers together, in summary.json and metrics.
struct FleetCounter {
  const char* name;
  const char* help;
};
constexpr FleetCounter kFleetCounters[] = {
    {"pull_bytes", "Keys and values of pulls as they travel, in bytes, without repeats"},
    {"push_bytes", "Keys and values of pushes as they travel, in bytes, without repeats"},
    {"cache_rows", "Rows pulled of tables with a cache"},
    {"cache_hits", "Rows found in a cache"},
    {"hot_rows", "Rows looked for among the hot rows"},
    {"hot_hits", "Rows found among the hot rows"},
    {"combined_pushes", "Pushes that went along with one of a later clock"},
    {"batches_passed_over", "Batches that pushed nothing, since their gradients do not fit fp16"},
    {"malformed_lines", "Malformed lines that training passed over"},
};
constexpr char kRowsNotFinite[] = "server.shard_rows_not_finite";
constexpr char kRowsNotFiniteHelp[] = "Gradients that servers skipped for infinite or NaN values";

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

MetricList SchedulerMetrics(const Job& job, const Progress& progress, const Rate& rate, const Refused& refused) {
  const Staleness staleness = StalenessOf(progress.staleness);
  MetricList list;
  list.Gauge("epoch", "Epoch, from 1", EpochNumber(progress.epoch));
  list.Gauge("clock", "Clock of the slowest worker", progress.min_clock.value);
  list.Counter("samples", "Rows trained and acknowledged", progress.samples);
  if (const double per_second = rate.per_second(); per_second > 0)
    list.Gauge("samples_per_second", "Rows trained a second, of the last seconds", per_second);
  if (progress.train.rows > 0) {
    list.Gauge("loss", "Progressive log-loss of the epoch", progress.train.LogLoss());
    if (job.data.format != DataFormat::kIdx) list.Gauge("auc", "Progressive AUC of the epoch", progress.train.Auc());
  }
  list.Gauge("staleness_mean", "Clocks by which pulls were behind, mean", staleness.mean);
  list.Gauge("staleness_max", "Clocks by which pulls were behind, maximum", staleness.max);
  if (progress.samples_total > 0) {
    const auto total = static_cast<double>(progress.samples_total);
    list.Gauge("progress", "Share of all epochs that is trained", static_cast<double>(progress.samples) / total);
    if (const double lasting = rate.lasting_per_second(); lasting > 0)
      list.Gauge("eta_seconds", "Time until all epochs are trained",
                 (total - static_cast<double>(progress.samples)) / lasting);
  }
  list.Gauge("workers_live", "Workers that take part", progress.workers_live);
  list.Counter("workers_died", "Workers declared dead", progress.workers_died);
  for (const auto& [name, help] : kFleetCounters) list.Counter(name, help, Whole(CounterOf(progress, name)));
  list.Counter("rows_not_finite", kRowsNotFiniteHelp, Whole(CounterOf(progress, kRowsNotFinite)));
  list.Counter("refused_malformed", "Messages refused because they are malformed", refused.malformed);
  list.Counter("refused_too_large", "Messages refused for their size", refused.too_large);
  list.Counter("refused_version", "Messages refused for their protocol version", refused.version);
  list.Counter("refused_handshakes", "Connections refused", refused.handshakes);
  if (!progress.epochs.empty() && progress.epochs.back().valid) {
    list.Gauge("valid_logloss", "Log-loss of the last epoch's validation", progress.epochs.back().valid->log_loss);
    list.Gauge("valid_auc", "AUC of the last epoch's validation", progress.epochs.back().valid->auc);
  }
  list.Histogram("staleness_clocks", "Clocks by which pulls were behind", progress.staleness);
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
  WriteStaleness(&json, progress);
  for (const FleetCounter& counter : kFleetCounters) json[counter.name] = Whole(CounterOf(progress, counter.name));
  json["rows_not_finite"] = Whole(CounterOf(progress, kRowsNotFinite));
  json["parameters_hash"] = progress.has_state_hash ? Json(fmt::format("{:016x}", progress.state_hash)) : Json();
  json.update({{"workers_died", progress.workers_died},
               {"batches_repeated", progress.batches_repeated},
               {"train_rows", progress.rows[0]},
               {"valid_rows", progress.rows[1]},
               {"test_rows", progress.rows[2]},
               {"epochs", EpochsJson(progress)},
               {"stages", SecondsJson("stage.", progress)},
               {"cpu", SecondsJson("cpu.", progress)},  // of the workers' training threads
               {"checkpoint", progress.last_checkpoint},
               {"best_checkpoint", progress.best_checkpoint},
               {"best_kept", BestKept(job, progress)}});
  return JsonText(json, 2) + "\n";
}

}  // namespace tarn::scheduler

// A job as text: names of its enumerations, the resolved job file and its fingerprint.
#include <fmt/format.h>

#include "core/byte_size.h"
#include "core/hash.h"
#include "core/job.h"
#include "core/job_fields.h"
#include "core/names.h"
#include "core/top_k_fields.h"

namespace tarn {
namespace {

constexpr Named<DataFormat> kFormats[] = {
    {DataFormat::kCriteo, "criteo"}, {DataFormat::kLibsvm, "libsvm"}, {DataFormat::kIdx, "idx"}};
constexpr Named<ModelKind> kModels[] = {{ModelKind::kLogisticRegression, "logistic_regression"},
                                        {ModelKind::kFm, "fm"},
                                        {ModelKind::kWideDeep, "wide_deep"},
                                        {ModelKind::kDeepFm, "deepfm"},
                                        {ModelKind::kDlrm, "dlrm"},
                                        {ModelKind::kDcnV2, "dcn_v2"},
                                        {ModelKind::kMlp, "mlp"}};
constexpr Named<Precision> kPrecisions[] = {
    {Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"}, {Precision::kTf32, "tf32"}, {Precision::kFp16, "fp16"}};
constexpr Named<OwnPushes> kOwnPushes[] = {{OwnPushes::kSeen, "seen"}, {OwnPushes::kBounded, "bounded"}};
constexpr Named<HotScore> kHotScores[] = {{HotScore::kLru, "lru"}, {HotScore::kLfu, "lfu"}};
constexpr Named<Durability> kDurabilities[] = {
    {Durability::kNone, "none"}, {Durability::kCheckpoint, "checkpoint"}, {Durability::kLog, "log"}};

// A TOML basic string.
std::string TomlString(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\u{:04X}", unsigned{byte});
    else
      out += c;
  }
  return out + "\"";
}

// The visitor of core/job_fields.h that writes "key = value" lines.
class SectionWriter {
 public:
  explicit SectionWriter(std::string& out) : out_(out) {}

  void Begin(std::string_view path) { out_ += fmt::format("{}[{}]\n", out_.empty() ? "" : "\n", path); }

  template <typename T>
  void Integer(std::string_view key, T value, std::uint64_t, std::uint64_t) {
    Line(key, fmt::format("{}", value));
  }
  template <typename T>
  void Number(std::string_view key, T value, Range) {
    Line(key, Digits(value));
  }
  template <typename E>
  void Name(std::string_view key, E value) {
    Line(key, TomlString(tarn::Name(value)));
  }
  void Bytes(std::string_view key, std::uint64_t value) { Line(key, value == 0 ? "0" : TomlString(ToByteSize(value))); }
  void Boolean(std::string_view key, bool value) { Line(key, value ? "true" : "false"); }
  void Text(std::string_view key, const std::string& value, TextRule) { Line(key, TomlString(value)); }
  void Integers(std::string_view key, const std::vector<std::uint32_t>& values, std::uint64_t, std::uint64_t,
                std::size_t) {
    Line(key, fmt::format("[{}]", fmt::join(values, ", ")));
  }
  void Bins(std::string_view key, const std::vector<BinRule>& rules) {
    std::string items;
    for (const BinRule& rule : rules) items += (items.empty() ? "" : ", ") + TomlString(ToString(rule));
    Line(key, fmt::format("[{}]", items));
  }

 private:
  void Line(std::string_view key, std::string_view value) { out_ += fmt::format("{} = {}\n", key, value); }

  // The shortest digits that read back as the same number of this type, and never as an integer.
  template <typename T>
  static std::string Digits(T value) {
    std::string digits = fmt::format("{}", value);
    if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
    return digits;
  }

  std::string& out_;
};

void WriteOptimizer(SectionWriter& out, std::string_view role, const OptimizerSpec& spec) {
  out.Begin(fmt::format("optimizer.{}", role));
  VisitOptimizer(out, spec);
}

void WriteTable(SectionWriter& out, const std::string& name, const TableOverride& table) {
  out.Begin("tables." + TomlString(name));
  if (table.has_consistency) VisitConsistency(out, table.consistency);
  if (table.has_worker_cache) VisitWorkerCache(out, table.worker_cache);
  if (table.has_pull_codec) out.Name("pull_codec", table.pull_codec);
  if (table.has_push_codec) out.Name("push_codec", table.push_codec);
  if (table.has_row_codec) out.Name("row_codec", table.row_codec);
  if (table.has_top_k) VisitTopK(out, table.top_k);
  if (table.has_life) VisitLife(out, table.life);
}

}  // namespace

std::string_view Name(DataFormat v) { return NameIn(kFormats, v); }
std::string_view Name(ModelKind v) { return NameIn(kModels, v); }
std::string_view Name(Durability v) { return NameIn(kDurabilities, v); }
std::string_view Name(Precision v) { return NameIn(kPrecisions, v); }
std::string_view Name(OwnPushes v) { return NameIn(kOwnPushes, v); }
std::string_view Name(HotScore v) { return NameIn(kHotScores, v); }

Status ParseName(std::string_view name, DataFormat& out) { return ParseIn(kFormats, "format", name, out); }
Status ParseName(std::string_view name, ModelKind& out) { return ParseIn(kModels, "model", name, out); }
Status ParseName(std::string_view name, Precision& out) { return ParseIn(kPrecisions, "precision", name, out); }
Status ParseName(std::string_view name, OwnPushes& out) { return ParseIn(kOwnPushes, "own_pushes", name, out); }
Status ParseName(std::string_view name, HotScore& out) { return ParseIn(kHotScores, "hot_score", name, out); }
Status ParseName(std::string_view name, Durability& out) { return ParseIn(kDurabilities, "durability", name, out); }

std::string ToString(const BinRule& rule) {
  switch (rule.kind) {
    case BinRule::Kind::kLog2: return "log2";
    case BinRule::Kind::kWidth: return fmt::format("width:{}", rule.width);
    case BinRule::Kind::kIdentity: return "identity";
    case BinRule::Kind::kNone: return "none";
  }
  return "none";
}

namespace {

// kAll: every key. kSaid: without those that came later and have their defaults, so that a job keeps its fingerprint:
// logs and checkpoints know theirs by it. Nor with those that are a worker's own affair: a run may go on where there is
// no GPU.
enum class Keys { kAll, kSaid };

std::string Text(const Job& job, Keys keys) {
  std::string text;
  SectionWriter out(text);
  out.Begin("job");
  VisitJobSection(out, job.job);
  out.Begin("fleet");
  VisitFleet(out, job.fleet);
  if (keys == Keys::kAll) VisitLanes(out, job.fleet);
  out.Begin("consistency");
  VisitConsistency(out, job.consistency);
  if (keys == Keys::kAll || job.worker_cache != WorkerCacheSpec()) VisitWorkerCache(out, job.worker_cache);
  out.Begin("storage");
  VisitStorage(out, job.storage);
  out.Begin("data");
  VisitData(out, job.data);
  out.Begin("model");
  VisitModel(out, job.model);
  out.Begin("train");
  VisitTrain(out, job.train);
  if (keys == Keys::kAll || job.train.hot_rows != HotRowsSpec()) VisitHotRows(out, job.train.hot_rows);
  if (keys == Keys::kAll) VisitTrainMeans(out, job.train);
  WriteOptimizer(out, "linear", job.optimizer.linear);
  WriteOptimizer(out, "embedding", job.optimizer.embedding);
  WriteOptimizer(out, "dense", job.optimizer.dense);
  for (const auto& [name, table] : job.tables) WriteTable(out, name, table);
  return text;
}

}  // namespace

std::string ToToml(const Job& job) { return Text(job, Keys::kAll); }

std::uint64_t Fingerprint(const Job& job) {
  Job shared = job;
  shared.data.dir.clear();  // nodes may keep their copies of the data in different places
  shared.fleet.worker_restarts = 0;
  return HashBytes(Text(shared, Keys::kSaid));
}

}  // namespace tarn

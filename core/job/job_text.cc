// Writes a job as text: names of enumerators, the resolved job file and its fingerprint.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/byte_size.h"
#include "core/hash.h"
#include "core/job/job.h"
#include "core/job/job_fields.h"
#include "core/job/job_inherits.h"
#include "core/names.h"
#include "core/table/compression_fields.h"

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
constexpr Named<LocalMethod> kLocalMethods[] = {{LocalMethod::kNone, "none"},
                                                {LocalMethod::kAccumulate, "accumulate"},
                                                {LocalMethod::kDelta, "delta"},
                                                {LocalMethod::kElastic, "elastic"}};
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

// A visitor for core/job/job_fields.h that writes "key = value" lines.
class SectionWriter {
 public:
  explicit SectionWriter(std::string& out) : out_(out) {}

  void Begin(std::string_view path) { out_ += fmt::format("{}[{}]\n", out_.empty() ? "" : "\n", path); }

  // From now on, until All(), writes only keys for which `wanted` returns true.
  void Only(std::function<bool(std::string_view)> wanted) { wanted_ = std::move(wanted); }
  void All() { wanted_ = nullptr; }
  void Comment(std::string_view text) { out_ += fmt::format("# {}\n", text); }

  template <typename T>
  void Integer(std::string_view key, T value, std::uint64_t, std::uint64_t) {
    Line(key, fmt::format("{}", value));
  }
  template <typename T>
  void Number(std::string_view key, T value, Range) {
    Line(key, Digits(value));
  }
  template <typename E>
  void Name(std::string_view key, const E& value) {
    Line(key, TomlString(tarn::Name(value)));
  }
  void Bytes(std::string_view key, std::uint64_t value) { Line(key, value == 0 ? "0" : TomlString(ToByteSize(value))); }
  void Boolean(std::string_view key, bool value) { Line(key, value ? "true" : "false"); }
  void Draws(std::string_view key, const Distribution& value) {
    if (value.kind == Distribution::Kind::kConstant) return Line(key, Digits(value.a));
    Line(key, TomlString(ToString(value)));
  }
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
  void Line(std::string_view key, std::string_view value) {
    if (!wanted_ || wanted_(key)) out_ += fmt::format("{} = {}\n", key, value);
  }

  // The shortest text that reads back as the same number of this type, and never as an integer.
  template <typename T>
  static std::string Digits(T value) {
    std::string digits = fmt::format("{}", value);
    if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
    return digits;
  }

  std::string& out_;
  std::function<bool(std::string_view)> wanted_;
};

// A visitor for core/job/job_fields.h that stores each value as text.
class ValueTexts {
 public:
  template <typename T>
  void Integer(std::string_view key, T value, std::uint64_t, std::uint64_t) {
    texts[std::string(key)] = fmt::format("{}", value);
  }
  template <typename T>
  void Number(std::string_view key, T value, Range) {
    texts[std::string(key)] = fmt::format("{}", value);
  }
  template <typename E>
  void Name(std::string_view key, const E& value) {
    texts[std::string(key)] = tarn::Name(value);
  }
  void Bytes(std::string_view key, std::uint64_t value) { texts[std::string(key)] = fmt::format("{}", value); }
  void Boolean(std::string_view key, bool value) { texts[std::string(key)] = fmt::format("{}", value); }

  std::map<std::string, std::string, std::less<>> texts;
};

// kAll: every key. kFingerprint: without keys that were added to the format later, if they have their defaults, so that
// fingerprints in older logs and checkpoints remain valid; and without [delays] and the keys of VisitLanes and
// VisitTrainExecution (lanes, device, accumulate, recompute), because a run may continue on other machines, such as
// some without a GPU.
enum class Keys { kAll, kFingerprint };

// Returns a predicate: whether a key of an inheriting section must be written, because the job sets it there or its
// value differs from the inherited one.
std::function<bool(std::string_view)> Own(const Job& job, std::string section, ValueTexts mine, ValueTexts inherited) {
  return [&job, section = std::move(section), mine = std::move(mine.texts),
          inherited = std::move(inherited.texts)](std::string_view key) {
    return job.explicit_keys.Has(section, key) || mine.find(key)->second != inherited.find(key)->second;
  };
}

void WriteRole(SectionWriter& out, const Job& job, const std::string& role, const OptimizerSpec& spec) {
  ValueTexts mine, inherited;
  VisitOptimizer(mine, spec);
  const OptimizerSpec inherited_spec = InheritedOptimizer(job.explicit_keys.optimizer, spec.kind);
  VisitOptimizer(inherited, inherited_spec);
  inherited.texts["kind"] = Name(job.explicit_keys.optimizer.kind);
  out.Begin("optimizer." + role);
  out.Only(Own(job, "optimizer." + role, std::move(mine), std::move(inherited)));
  VisitOptimizer(out, spec);
  out.All();
}

void WriteConsistencyKeys(SectionWriter& out, const ConsistencySpec& spec, Keys keys, bool with_apply = true) {
  out.Only([&](std::string_view key) {
    if (key == "apply") return with_apply;
    if (keys == Keys::kAll) return true;
    if (key == "backup_workers") return spec.backup_workers != 0;
    return key != "staleness_range" || spec.staleness_range != 0;
  });
  VisitConsistency(out, spec);
  out.All();
}

void WriteWorkerCacheKeys(SectionWriter& out, const WorkerCacheSpec& spec, Keys keys) {
  out.Only([&](std::string_view key) { return keys == Keys::kAll || spec.refresh_rows || key != "refresh_rows"; });
  VisitWorkerCache(out, spec);
  out.All();
}

void WriteCompressionKeys(SectionWriter& out, const TableOverride& table) {
  const CompressionSpec& spec = table.compression;
  const bool top_k = table.push_codec == ValueCodec::kTopK;
  out.Only([&](std::string_view key) {
    if (key == "push_topk") return top_k;
    if (key == "push_momentum") return top_k && spec.momentum != 0;
    if (key == "push_warmup_clocks") return top_k && spec.warmup_clocks != 0;
    return (key == "push_rank") == (table.push_codec == ValueCodec::kLowRank);
  });
  VisitCompression(out, spec);
  out.All();
}

// Writes the keys of [consistency]. With `derived_in_comment`, `apply` is a comment if it follows from the mode and the
// job does not set it.
void WriteConsistency(SectionWriter& out, const Job& job, Keys keys, bool derived_in_comment) {
  const ConsistencySpec& spec = job.consistency;
  const bool with_apply =
      !derived_in_comment || job.explicit_keys.Has("consistency", "apply") || spec.apply != DefaultApply(spec.mode);
  WriteConsistencyKeys(out, spec, keys, with_apply);
  if (with_apply) return;
  out.Comment(fmt::format("apply = {}", TomlString(Name(spec.apply))));
}

// Writes the keys of [fleet]. With `default_in_comment`, `worker_restarts` is a comment if it has its default and the
// job does not set it: tools/launch restarts a program of the user only if the job sets the key.
void WriteFleet(SectionWriter& out, const Job& job, Keys keys, bool default_in_comment) {
  const std::uint32_t restarts = job.fleet.worker_restarts;
  const bool with_restarts = !default_in_comment || job.explicit_keys.Has("fleet", "worker_restarts") ||
                             restarts != FleetSection().worker_restarts;
  out.Only([=](std::string_view key) { return with_restarts || key != "worker_restarts"; });
  VisitFleet(out, job.fleet);
  out.All();
  if (keys == Keys::kAll) VisitLanes(out, job.fleet);
  if (!with_restarts) out.Comment(fmt::format("worker_restarts = {}", restarts));
}

// Writes the inheritable keys that the table sets itself, or whose values differ from those that it would inherit with
// its mode (job_inherits.h). If the reader would not see the override by them, writes `mode` or `own_pushes`, too.
void WriteInheritedKeys(SectionWriter& out, const Job& job, const std::string& name, const TableOverride& table) {
  const std::string section = "tables." + name;
  const ConsistencySpec& consistency = table.has_consistency ? table.consistency : job.consistency;
  if (table.has_consistency) {
    const ConsistencySpec inherited_spec = InheritedConsistency(job.consistency, consistency.mode);
    ValueTexts mine, inherited;
    VisitConsistency(mine, consistency);
    VisitConsistency(inherited, inherited_spec);
    inherited.texts["mode"] = Name(job.consistency.mode);
    const bool no_key = mine.texts == inherited.texts && !job.explicit_keys.by_section.contains(section);
    if (no_key) inherited.texts["mode"].clear();  // writes `mode`, so that the reader sets has_consistency
    out.Only(Own(job, section, std::move(mine), std::move(inherited)));
    VisitConsistency(out, consistency);
    out.All();
  }
  if (table.has_worker_cache) {
    const WorkerCacheSpec inherited_spec = InheritedWorkerCache(job.worker_cache, consistency);
    ValueTexts mine, inherited;
    VisitWorkerCache(mine, table.worker_cache);
    VisitWorkerCache(inherited, inherited_spec);
    const bool is_explicit =
        std::ranges::any_of(mine.texts, [&](const auto& key) { return job.explicit_keys.Has(section, key.first); });
    const bool no_key = mine.texts == inherited.texts && inherited_spec == job.worker_cache && !is_explicit;
    if (no_key) inherited.texts["own_pushes"].clear();  // writes `own_pushes`, so that the reader sets has_worker_cache
    out.Only(Own(job, section, std::move(mine), std::move(inherited)));
    VisitWorkerCache(out, table.worker_cache);
    out.All();
  }
}

void WriteOptimizer(SectionWriter& out, std::string_view role, const OptimizerSpec& spec, Keys keys) {
  out.Begin(fmt::format("optimizer.{}", role));
  if (keys == Keys::kFingerprint)
    out.Only([&spec](std::string_view key) {
      const UpdateRule& rule = *FindUpdateRule(spec.kind);
      return !rule.Has(key) || OptionOf(spec, key) != rule.options[rule.IndexOf(key)].by_default;
    });
  VisitOptimizer(out, spec);
  out.All();
}

void WriteTable(SectionWriter& out, const Job& job, const std::string& name, const TableOverride& table, Keys keys,
                bool own) {
  out.Begin("tables." + TomlString(name));
  if (own) WriteInheritedKeys(out, job, name, table);
  if (!own && table.has_consistency) WriteConsistencyKeys(out, table.consistency, keys);
  if (!own && table.has_worker_cache) WriteWorkerCacheKeys(out, table.worker_cache, keys);
  if (table.has_pull_codec) out.Name("pull_codec", table.pull_codec);
  if (table.has_push_codec) out.Name("push_codec", table.push_codec);
  if (table.has_row_codec) out.Name("row_codec", table.row_codec);
  if (table.has_compression) WriteCompressionKeys(out, table);
  if (table.has_life) VisitLife(out, table.life);
}

}  // namespace

std::string_view Name(DataFormat v) { return NameIn(kFormats, v); }
std::string_view Name(ModelKind v) { return NameIn(kModels, v); }
std::string_view Name(Durability v) { return NameIn(kDurabilities, v); }
std::string_view Name(Precision v) { return NameIn(kPrecisions, v); }
std::string_view Name(OwnPushes v) { return NameIn(kOwnPushes, v); }
std::string_view Name(HotScore v) { return NameIn(kHotScores, v); }
std::string_view Name(LocalMethod v) { return NameIn(kLocalMethods, v); }

Status ParseName(std::string_view name, DataFormat& out) { return ParseIn(kFormats, "format", name, out); }
Status ParseName(std::string_view name, ModelKind& out) { return ParseIn(kModels, "model", name, out); }
Status ParseName(std::string_view name, Precision& out) { return ParseIn(kPrecisions, "precision", name, out); }
Status ParseName(std::string_view name, OwnPushes& out) { return ParseIn(kOwnPushes, "own_pushes", name, out); }
Status ParseName(std::string_view name, HotScore& out) { return ParseIn(kHotScores, "hot_score", name, out); }
Status ParseName(std::string_view name, LocalMethod& out) { return ParseIn(kLocalMethods, "method", name, out); }
Status ParseName(std::string_view name, Durability& out) { return ParseIn(kDurabilities, "durability", name, out); }

std::string ToString(const BinRule& rule) {
  switch (rule.kind) {
    case BinRule::Kind::kLogSquared: return "log2";
    case BinRule::Kind::kWidth: return fmt::format("width:{}", rule.width);
    case BinRule::Kind::kIdentity: return "identity";
    case BinRule::Kind::kNone: return "none";
  }
  return "none";
}

namespace {

// Whether inherited keys are written. kOmitted: sections have only their own keys. kWritten: [optimizer.ROLE] has all
// keys and [optimizer] is left out; [tables.NAME] has every key of the groups (consistency, worker cache) that it
// overrides, as far as `Keys` allows.
enum class InheritedKeys { kOmitted, kWritten };

std::string Text(const Job& job, Keys keys, InheritedKeys inherited) {
  const bool own = inherited == InheritedKeys::kOmitted;
  std::string text;
  SectionWriter out(text);
  out.Begin("job");
  VisitJobSection(out, job.job);
  out.Begin("fleet");
  WriteFleet(out, job, keys, own);
  out.Begin("consistency");
  WriteConsistency(out, job, keys, own);
  if (keys == Keys::kAll || job.worker_cache != WorkerCacheSpec()) WriteWorkerCacheKeys(out, job.worker_cache, keys);
  out.Begin("storage");
  VisitStorage(out, job.storage);
  out.Begin("data");
  VisitData(out, job.data);
  out.Begin("model");
  VisitModel(out, job.model);
  out.Begin("train");
  VisitTrain(out, job.train);
  if (keys == Keys::kAll || !job.train.batch_shares.empty()) VisitBatchShares(out, job.train);
  if (keys == Keys::kAll || job.train.hot_rows != HotRowsSpec()) VisitHotRows(out, job.train.hot_rows);
  if (keys == Keys::kAll) VisitTrainExecution(out, job.train);
  if (keys == Keys::kAll || job.local != LocalSection()) {
    out.Begin("local");
    VisitLocal(out, job.local);
  }
  if (keys == Keys::kAll) {
    out.Begin("delays");
    VisitDelays(out, job.delays);
  }
  if (own) {
    out.Begin("optimizer");
    VisitOptimizer(out, job.explicit_keys.optimizer);
    const UpdateRule& rule = *FindUpdateRule(job.explicit_keys.optimizer.kind);
    for (const auto& [name, value] : job.explicit_keys.optimizer.options)
      if (!rule.Has(name)) out.Number(name, value, Range());
  }
  for (const auto& [role, spec] :
       {std::pair("linear", &job.optimizer.linear), std::pair("embedding", &job.optimizer.embedding),
        std::pair("dense", &job.optimizer.dense)})
    own ? WriteRole(out, job, role, *spec) : WriteOptimizer(out, role, *spec, keys);
  for (const auto& [name, table] : job.tables) WriteTable(out, job, name, table, keys, own);
  return text;
}

}  // namespace

std::string ToToml(const Job& job) { return Text(job, Keys::kAll, InheritedKeys::kOmitted); }

std::string ResolvedToml(const Job& job) { return Text(job, Keys::kAll, InheritedKeys::kWritten); }

std::uint64_t Fingerprint(const Job& job) {
  Job shared = job;
  shared.data.dir.clear();  // nodes may have copies of the data in different places
  shared.fleet.worker_restarts = 0;
  return HashBytes(Text(shared, Keys::kFingerprint, InheritedKeys::kWritten));
}

}  // namespace tarn

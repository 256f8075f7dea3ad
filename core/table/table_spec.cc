#include "core/table/table_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/byte_size.h"
#include "core/hash.h"
#include "core/limits.h"
#include "core/names.h"
#include "core/table/compression_fields.h"
#include "core/table/life_fields.h"
#include "core/table/optimizer_fields.h"
#include "core/utf8.h"

namespace tarn {
namespace {

constexpr Named<TableKind> kTableKinds[] = {{TableKind::kDense, "dense"}, {TableKind::kSparse, "sparse"}};
constexpr Named<PushedValues> kPushedValues[] = {{PushedValues::kGradients, "gradients"},
                                                 {PushedValues::kDeltas, "deltas"}};
constexpr Named<InitializerKind> kInitializers[] = {{InitializerKind::kZero, "zero"},
                                                    {InitializerKind::kConstant, "constant"},
                                                    {InitializerKind::kUniform, "uniform"},
                                                    {InitializerKind::kNormal, "normal"}};
constexpr Named<ScheduleKind> kSchedules[] = {
    {ScheduleKind::kConstant, "constant"}, {ScheduleKind::kStep, "step"}, {ScheduleKind::kCosine, "cosine"}};
constexpr Named<ConsistencyMode> kModes[] = {
    {ConsistencyMode::kBsp, "bsp"}, {ConsistencyMode::kSsp, "ssp"}, {ConsistencyMode::kAsp, "asp"}};
constexpr Named<ApplyMode> kApplyModes[] = {{ApplyMode::kImmediate, "immediate"},
                                            {ApplyMode::kAggregated, "aggregated"}};
constexpr Named<ValueCodec> kCodecs[] = {{ValueCodec::kFp32, "fp32"},       {ValueCodec::kBf16, "bf16"},
                                         {ValueCodec::kFp16, "fp16"},       {ValueCodec::kInt8, "int8"},
                                         {ValueCodec::kTopK, "topk"},       {ValueCodec::kQsgd, "qsgd"},
                                         {ValueCodec::kTernary, "ternary"}, {ValueCodec::kSign, "sign"},
                                         {ValueCodec::kOneBit, "one_bit"},  {ValueCodec::kLowRank, "low_rank"}};

Status Invalid(std::string message) { return Fail(ErrorCode::kInvalidArgument, std::move(message)); }

// A visitor that stores an error about the first field that is out of its range.
class RangeChecker {
 public:
  template <typename T>
  void Number(std::string_view key, T value, Range range) {
    if (status_ && !range.Holds(value))
      status_ = Invalid(fmt::format("{} = {}: expected {}", key, value, Describe(range)));
  }
  void Boolean(std::string_view, bool) {}
  void Integer(std::string_view key, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    if (status_ && (value < low || value > high))
      status_ = Invalid(fmt::format("{} = {}: expected {} to {}", key, value, low, high));
  }
  void Bytes(std::string_view key, std::uint64_t value) {
    if (status_ && (value < limits::kResidualBytesMin || value > limits::kResidualBytesMax))
      status_ = Invalid(fmt::format("{} = {}: expected {} to {}", key, ToByteSize(value),
                                    ToByteSize(limits::kResidualBytesMin), ToByteSize(limits::kResidualBytesMax)));
  }
  void Name(std::string_view, const RuleName&) {}  // checked before its options
  template <typename E>
  void Name(std::string_view key, E value) {
    if (status_ && tarn::Name(value) == "unknown")
      status_ = Invalid(fmt::format("{} = {}: not a known kind", key, int(value)));
  }
  Status Result() { return std::move(status_); }

 private:
  Status status_;
};

Status ValidateShape(const TableSpec& spec) {
  if (spec.name.empty() || spec.name.size() > limits::kNameBytesMax)
    return Invalid(fmt::format("table {}: name of {} bytes, expected 1 to {}", Quoted(spec.name), spec.name.size(),
                               limits::kNameBytesMax));
  if (!IsUtf8(spec.name))
    return Invalid(fmt::format("table {}: name that is not UTF-8, expected UTF-8", Quoted(spec.name)));
  if (Name(spec.kind) == "unknown" || Name(spec.pull_codec) == "unknown" || Name(spec.push_codec) == "unknown" ||
      Name(spec.row_codec) == "unknown")
    return Invalid(fmt::format("table {}: kind or codec is not a known one", Quoted(spec.name)));
  if (Name(spec.pushes) == "unknown")
    return Invalid(fmt::format("table {}: pushes = {}: expected gradients or deltas (0 or 1)", Quoted(spec.name),
                               int(spec.pushes)));
  if (spec.pushes == PushedValues::kDeltas && spec.optimizer.l2 != 0)
    return Invalid(
        fmt::format("table {}: l2 = {:g} with pushes = \"deltas\": l2 belongs to the gradient of the loss, so "
                    "to the local steps of the workers; expected 0",
                    Quoted(spec.name), spec.optimizer.l2));
  if (spec.dim < 1 || spec.dim > limits::kRowDimMax)
    return Invalid(
        fmt::format("table {}: dim = {}: expected 1 to {}", Quoted(spec.name), spec.dim, limits::kRowDimMax));
  if (spec.kind == TableKind::kDense && spec.rows == 0)
    return Invalid(fmt::format("table {}: rows = 0: a dense table has at least one row", Quoted(spec.name)));
  if (spec.kind == TableKind::kSparse && spec.rows != 0)
    return Invalid(
        fmt::format("table {}: rows = {}: a sparse table has no number of rows (0)", Quoted(spec.name), spec.rows));
  if (spec.kind == TableKind::kDense && spec.row_codec != ValueCodec::kFp32)
    return Invalid(
        fmt::format("table {}: row_codec = \"{}\": a dense table keeps fp32", Quoted(spec.name), Name(spec.row_codec)));
  if (spec.kind == TableKind::kDense && spec.life.on)
    return Invalid(
        fmt::format("table {}: life = true: rows of a dense table are neither admitted nor expire; expected false",
                    Quoted(spec.name)));
  return {};
}

// int8 is for rows in messages, if it makes them smaller; the codecs after it are only for pushes.
Status ValidateCodecs(const TableSpec& spec) {
  if (spec.push_codec == ValueCodec::kLowRank && spec.kind != TableKind::kDense)
    return Invalid(
        fmt::format("table {}: push_codec = \"low_rank\": for the matrices of dense tables; this one is sparse",
                    Quoted(spec.name)));
  if (!IsPlain(spec.row_codec))
    return Invalid(
        fmt::format("table {}: row_codec = \"{}\": expected fp32, bf16 or fp16 (the others are for values on their "
                    "way)",
                    Quoted(spec.name), Name(spec.row_codec)));
  if (!IsForPulls(spec.pull_codec))
    return Invalid(
        fmt::format("table {}: pull_codec = \"{}\": expected fp32, bf16, fp16 or int8 (the others are for "
                    "push_codec)",
                    Quoted(spec.name), Name(spec.pull_codec)));
  for (const auto& [key, codec] : {std::pair{"pull_codec", spec.pull_codec}, std::pair{"push_codec", spec.push_codec}})
    if (CodecRowBytes(codec, spec.dim) > CodecRowBytes(ValueCodec::kFp32, spec.dim))
      return Invalid(
          fmt::format("table {}: {} = \"{}\" with dim = {}: a row would take {} bytes, more than the {} of "
                      "fp32; expected fp32, bf16 or fp16",
                      Quoted(spec.name), key, Name(codec), spec.dim, CodecRowBytes(codec, spec.dim),
                      CodecRowBytes(ValueCodec::kFp32, spec.dim)));
  return {};
}

Status Validate(const InitializerSpec& spec) {
  if (Name(spec.kind) == "unknown") return Invalid("initializer: not a known kind");
  if (!std::isfinite(spec.a) || !std::isfinite(spec.b)) return Invalid("initializer: a and b must be finite numbers");
  if (spec.kind == InitializerKind::kUniform && spec.a > spec.b)
    return Invalid(fmt::format("initializer: uniform from {} to {}: the low end comes first", spec.a, spec.b));
  if (spec.kind == InitializerKind::kNormal && spec.b < 0)
    return Invalid(fmt::format("initializer: normal with standard deviation {}: expected >= 0", spec.b));
  return {};
}

}  // namespace

std::string_view Name(TableKind v) { return NameIn(kTableKinds, v); }
std::string_view Name(PushedValues v) { return NameIn(kPushedValues, v); }
std::string_view Name(InitializerKind v) { return NameIn(kInitializers, v); }
std::string_view Name(ScheduleKind v) { return NameIn(kSchedules, v); }
std::string_view Name(ConsistencyMode v) { return NameIn(kModes, v); }
std::string_view Name(ApplyMode v) { return NameIn(kApplyModes, v); }
std::string_view Name(ValueCodec v) { return NameIn(kCodecs, v); }

Status ParseName(std::string_view name, TableKind& out) { return ParseIn(kTableKinds, "table kind", name, out); }
Status ParseName(std::string_view name, PushedValues& out) {
  return ParseIn(kPushedValues, "kind of pushed values", name, out);
}
Status ParseName(std::string_view name, InitializerKind& out) {
  return ParseIn(kInitializers, "initializer", name, out);
}
Status ParseName(std::string_view name, ScheduleKind& out) { return ParseIn(kSchedules, "schedule", name, out); }
Status ParseName(std::string_view name, ConsistencyMode& out) { return ParseIn(kModes, "mode", name, out); }
Status ParseName(std::string_view name, ApplyMode& out) { return ParseIn(kApplyModes, "apply mode", name, out); }
Status ParseName(std::string_view name, ValueCodec& out) { return ParseIn(kCodecs, "codec", name, out); }

bool operator==(const OptimizerSpec& a, const OptimizerSpec& b) {
  if (a.kind != b.kind || a.learning_rate != b.learning_rate || a.l2 != b.l2 || a.clip_value != b.clip_value ||
      a.clip_norm != b.clip_norm || a.schedule != b.schedule)
    return false;
  if (a.options == b.options) return true;
  const UpdateRule* rule = FindUpdateRule(a.kind);
  return rule != nullptr && std::ranges::all_of(rule->options, [&](const RuleOption& option) {
           return OptionOf(a, option.name) == OptionOf(b, option.name);
         });
}

float OptionOf(const OptimizerSpec& spec, std::string_view name) {
  if (const auto named = spec.options.find(name); named != spec.options.end()) return named->second;
  const UpdateRule* rule = FindUpdateRule(spec.kind);
  const std::size_t i = rule == nullptr ? 0 : rule->IndexOf(name);
  return rule == nullptr || i == rule->options.size() ? 0 : rule->options[i].by_default;
}

namespace {

// Validates the options of a known rule.
Status ValidateOptions(const UpdateRule& rule, const NamedOptions& options) {
  std::vector<std::string_view> known;
  for (const RuleOption& option : rule.options) known.push_back(option.name);
  for (const auto& [name, value] : options) {
    if (rule.Has(name)) continue;
    if (known.empty()) return Invalid(fmt::format("{}: {} has no options of its own", Quoted(name), rule.name));
    return UnknownName(fmt::format("option of {}", rule.name), name, known);
  }
  return {};
}

}  // namespace

Status Validate(const OptimizerSpec& spec) {
  RuleName known = spec.kind;
  TARN_RETURN_IF_ERROR(ParseName(spec.kind, known));
  const UpdateRule& rule = *FindUpdateRule(spec.kind);
  TARN_RETURN_IF_ERROR(ValidateOptions(rule, spec.options));
  RangeChecker checker;
  VisitOptimizer(checker, spec);
  TARN_RETURN_IF_ERROR(checker.Result());
  for (const std::string_view count : {"buffer", "workers_min"})
    if (rule.Has(count) && OptionOf(spec, count) != std::floor(OptionOf(spec, count)))
      return Invalid(fmt::format("{} = {}: expected a whole number", count, OptionOf(spec, count)));
  if (rule.divides_by_rate && spec.learning_rate == 0)
    return Invalid(fmt::format("learning_rate = 0: {} divides by it, so it must be > 0", rule.name));
  if (spec.schedule.kind != ScheduleKind::kConstant && spec.schedule.period_clocks == 0)
    return Invalid(fmt::format("period_clocks = 0: schedule = \"{}\" needs a period of at least 1 clock",
                               Name(spec.schedule.kind)));
  return {};
}

Status Validate(const ConsistencySpec& spec) {
  if (Name(spec.mode) == "unknown" || Name(spec.apply) == "unknown") return Invalid("mode or apply is not a known one");
  if (spec.mode == ConsistencyMode::kAsp && spec.apply == ApplyMode::kAggregated)
    return Invalid(
        "apply = \"aggregated\" with mode = \"asp\": a clock's pushes would wait for the whole cohort, for which "
        "asp never waits; use apply = \"immediate\", or mode = \"bsp\" or \"ssp\"");
  if (spec.staleness > limits::kStalenessMax)
    return Invalid(fmt::format("staleness = {}: expected 0 to {}", spec.staleness, limits::kStalenessMax));
  if (spec.backup_workers != 0 && (spec.mode != ConsistencyMode::kBsp || spec.apply != ApplyMode::kAggregated))
    return Invalid(fmt::format(
        "backup_workers = {} with mode = \"{}\" and apply = \"{}\": a clock closes without the slowest workers only "
        "with mode = \"bsp\" and apply = \"aggregated\"",
        spec.backup_workers, Name(spec.mode), Name(spec.apply)));
  if (spec.staleness_range != 0 && spec.mode != ConsistencyMode::kSsp)
    return Invalid(fmt::format("staleness_range = {} with mode = \"{}\": only \"ssp\" has a bound on the staleness",
                               spec.staleness_range, Name(spec.mode)));
  if (spec.staleness_range > limits::kStalenessRangeMax)
    return Invalid(
        fmt::format("staleness_range = {}: expected 0 to {}", spec.staleness_range, limits::kStalenessRangeMax));
  if (StalenessBound(spec) > limits::kStalenessMax)
    return Invalid(fmt::format("staleness = {} and staleness_range = {}: expected at most {} together", spec.staleness,
                               spec.staleness_range, limits::kStalenessMax));
  return {};
}

Status Validate(const LifeSpec& spec) {
  RangeChecker checker;
  VisitLife(checker, spec);
  TARN_RETURN_IF_ERROR(checker.Result());
  if (!spec.on)
    return spec == LifeSpec{} ? Status{} : Invalid("life = false: the other keys of a life would mean nothing");
  if (spec.expire_clocks != 0 && spec.expire_seconds != 0)
    return Invalid(
        fmt::format("expire_clocks = {} and expire_seconds = {:g}: a row stores the clock or the time of its "
                    "last push, not both; expected 0 for one of them",
                    spec.expire_clocks, spec.expire_seconds));
  if (spec.min_score != 0 && spec.score_decay == 1)
    return Invalid(fmt::format("min_score = {}: needs a score_decay below 1, or no score ever falls", spec.min_score));
  if (spec.score_decay != 1 && (spec.expire_clocks != 0 || spec.expire_seconds != 0))
    return Invalid(
        fmt::format("score_decay = {}: rows expire by age (expire_clocks, expire_seconds) or by score, not "
                    "by both; expected score_decay = 1, or 0 for the other two",
                    spec.score_decay));
  return {};
}

Status Validate(const CompressionSpec& spec) {
  RangeChecker checker;
  VisitCompression(checker, spec);
  return checker.Result();
}

namespace {

// A rule with needs_pulled needs the pulled row of each gradient. A sum over workers, or a gradient with residuals, has
// no such row.
Status ValidateRule(const TableSpec& spec) {
  const UpdateRule* rule = FindUpdateRule(spec.optimizer.kind);
  if (rule == nullptr || !rule->needs_pulled) return {};
  const auto refuse = [&](const char* key, std::string_view value, const char* why, const char* expected) {
    return Invalid(
        fmt::format("table {}: {} = \"{}\" with kind = \"{}\": for each gradient, the rule needs the row that its "
                    "worker had pulled, {}; expected {}",
                    Quoted(spec.name), key, value, rule->name, why, expected));
  };
  if (spec.consistency.apply == ApplyMode::kAggregated)
    return refuse("apply", "aggregated", "but a sum over workers has several",
                  "\"immediate\" (mode \"asp\" or \"ssp\")");
  if (KeepsResiduals(spec.push_codec))
    return refuse("push_codec", Name(spec.push_codec), "but residuals of earlier gradients belong to older rows",
                  "fp32, bf16, fp16, int8, qsgd or ternary");
  return {};
}

}  // namespace

Status Validate(const TableSpec& spec) {
  TARN_RETURN_IF_ERROR(ValidateShape(spec));
  TARN_RETURN_IF_ERROR(ValidateCodecs(spec));
  Status parts[] = {Validate(spec.initializer), Validate(spec.optimizer), Validate(spec.consistency),
                    Validate(spec.life), Validate(spec.compression)};
  for (Status& part : parts)
    if (!part) return Invalid(fmt::format("table {}: {}", Quoted(spec.name), part.error().message));
  return ValidateRule(spec);
}

Status ValidatePartitions(const TableSpec& spec, std::uint32_t partition_bits) {
  if (spec.kind != TableKind::kDense || spec.rows == 0) return {};
  const std::uint32_t slots = SlotFloats(spec.optimizer.kind, spec.dim);
  const std::uint64_t row_bytes = (std::uint64_t{spec.dim} + slots) * sizeof(float);
  const std::uint64_t rows = ((spec.rows - 1) >> partition_bits) + 1;  // of the largest partition
  if (rows <= limits::kDensePartitionBytesMax / row_bytes) return {};
  return Fail(ErrorCode::kTooLarge,
              fmt::format("table {}: {} dense rows of dim {} and {} slots in {} partitions: {:.0f} bytes in one, at "
                          "most {}; more partitions ([fleet] partition_bits) or fewer rows",
                          Quoted(spec.name), spec.rows, spec.dim, slots, 1u << partition_bits,
                          static_cast<double>(rows) * static_cast<double>(row_bytes), limits::kDensePartitionBytesMax));
}

std::uint64_t ResidualRowsMax(const TableSpec& spec) {
  constexpr std::uint64_t kPerRow = 56;  // bytes for the key, the clock, list links, and the index
  const std::uint64_t arrays = spec.compression.momentum == 0 ? 1 : 2;
  return spec.compression.residual_bytes / (kPerRow + arrays * spec.dim * sizeof(float));
}

std::uint64_t TableSalt(std::uint64_t job_seed, std::string_view table_name) { return HashBytes(table_name, job_seed); }

}  // namespace tarn

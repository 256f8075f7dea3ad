// What a table is: shape, initial values, optimizer, consistency and codecs. Plain values, made from the job
// file by the scheduler's and the models' code and sent to every shard with CreateTable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/limits.h"
#include "core/table/update_rule.h"
#include "core/types.h"

namespace tarn {

enum class TableKind : std::uint8_t { kDense, kSparse };

enum class InitializerKind : std::uint8_t { kZero, kConstant, kUniform, kNormal };

// Initial value of a row: a pure function of (seed, table, key), never of arrival order or server count.
struct InitializerSpec {
  InitializerKind kind = InitializerKind::kZero;
  float a = 0;  // constant: the value; uniform: the low end; normal: the mean
  float b = 0;  // uniform: the high end; normal: the standard deviation
  friend bool operator==(const InitializerSpec&, const InitializerSpec&) = default;
};

enum class ScheduleKind : std::uint8_t { kConstant, kStep, kCosine };

// Learning rate as a function of the clock of the push.
struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::kConstant;
  std::uint64_t warmup_clocks = 0;  // linear from 0 to the full rate
  std::uint64_t period_clocks = 0;  // step: clocks between steps; cosine: clocks until the floor
  float factor = 0.1f;              // step: multiplier at each step; cosine: floor as a share of the rate
  friend bool operator==(const ScheduleSpec&, const ScheduleSpec&) = default;
};

// Options of a rule by name; those that are not named have their defaults.
using NamedOptions = std::map<std::string, float, std::less<>>;

// The update rule of a table, and what is common to all rules.
struct OptimizerSpec {
  RuleName kind = "sgd";
  float learning_rate = 0.01f;
  NamedOptions options;
  float l2 = 0.0f;          // added to the gradient: l2 * value
  float clip_value = 0.0f;  // 0: off; else each gradient element is cut to [-c, c]
  float clip_norm = 0.0f;   // 0: off; else a row's gradient is scaled to at most this norm
  ScheduleSpec schedule;
  // An option that is named and one that has the same value by default are equal.
  friend bool operator==(const OptimizerSpec& a, const OptimizerSpec& b);
};

// The value of an option: as named, else by default; 0 if the rule has no such option.
float OptionOf(const OptimizerSpec& spec, std::string_view name);

enum class ConsistencyMode : std::uint8_t { kBsp, kSsp, kAsp };
enum class ApplyMode : std::uint8_t { kImmediate, kAggregated };

struct ConsistencySpec {
  ConsistencyMode mode = ConsistencyMode::kBsp;
  std::uint32_t staleness = 0;  // ssp only: how many clocks a worker may be ahead of the slowest
  ApplyMode apply = ApplyMode::kAggregated;
  friend bool operator==(const ConsistencySpec&, const ConsistencySpec&) = default;
};

// How values travel, and how servers keep those of sparse rows (in the first three alone).
enum class ValueCodec : std::uint8_t {
  kFp32,
  kBf16,
  kFp16,
  kInt8,  // a row is its scale, an fp32, and a signed byte a value (kernels/quantize.h)
  kTopK,  // of pushes: the largest alone, the rest stays with the worker (TopKSpec)
};

// Bytes of a row of `dim` values as it travels; of kTopK what it becomes, for rows have no size of their own in it.
constexpr std::size_t CodecRowBytes(ValueCodec codec, std::uint32_t dim) {
  if (codec == ValueCodec::kInt8) return sizeof(float) + dim;
  const bool half = codec == ValueCodec::kBf16 || codec == ValueCodec::kFp16;
  return dim * (half ? sizeof(float) / 2 : sizeof(float));
}

// Whether a value has its bytes to itself, so that rows can be kept and written in the codec.
constexpr bool IsPlain(ValueCodec codec) { return codec <= ValueCodec::kFp16; }

// When a key of a sparse table gets a row, and when it loses it (docs/protocol.md, "The life of a row"). A table whose
// life is on keeps with each row when it was last pushed and a score, and may change the numbers below between runs.
struct LifeSpec {
  bool on = false;
  // Admission: what is pushed before is dropped and counted.
  std::uint32_t admit_count = 1;   // a key gets a row at its n-th push
  float admit_probability = 1.0f;  // and then at each push with this probability
  // Expiry; 0: none.
  std::uint64_t expire_clocks = 0;   // after so many clocks without a push
  double expire_seconds = 0;         // or so many seconds, of the wall clock
  float min_score = 0.0f;            // once its score is below
  float score_decay = 1.0f;          // of the score a clock; each push of a clock adds 1
  std::uint64_t rows_max = 0;        // of the whole table; the lowest scores go first, or the longest without a push
  std::uint64_t sweep_clocks = 100;  // rows expire at its multiples (rule R4)
  friend bool operator==(const LifeSpec&, const LifeSpec&) = default;
};

// push_codec = kTopK: a push sends what is largest; what it does not is added to the next gradient of the same key
// (rule W5).
struct TopKSpec {
  float share = 0.01f;                                           // of the rows (sparse) or values (dense) of a push
  std::uint64_t residual_bytes = limits::kResidualBytesDefault;  // of a worker, for a sparse table
  friend bool operator==(const TopKSpec&, const TopKSpec&) = default;
};

struct TableSpec {
  TableId id;
  std::string name;
  TableKind kind = TableKind::kSparse;
  std::uint32_t dim = 1;   // values a row: 1..limits::kRowDimMax
  std::uint64_t rows = 0;  // dense only: keys are 0..rows-1
  InitializerSpec initializer;
  OptimizerSpec optimizer;
  ConsistencySpec consistency;
  ValueCodec pull_codec = ValueCodec::kFp32;
  ValueCodec push_codec = ValueCodec::kFp32;
  ValueCodec row_codec = ValueCodec::kFp32;  // of the values that servers keep: no int8; dense tables: fp32
  LifeSpec life;                             // sparse only
  TopKSpec top_k;                            // push_codec kTopK only
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// Keys of a sparse table for which a worker may keep what a push did not send: as many as residual_bytes has room for.
std::uint64_t ResidualRowsMax(const TableSpec& spec);

// Names as the job file spells them: "dense", "bsp", ...
std::string_view Name(TableKind v);
std::string_view Name(InitializerKind v);
std::string_view Name(ScheduleKind v);
std::string_view Name(ConsistencyMode v);
std::string_view Name(ApplyMode v);
std::string_view Name(ValueCodec v);

// The value of a name; `out` stays as it is on failure, and the message holds the name, all known names and the
// nearest: `unknown mode 'aps': expected one of bsp, ssp, asp; the nearest is 'asp'`.
Status ParseName(std::string_view name, TableKind& out);
Status ParseName(std::string_view name, InitializerKind& out);
Status ParseName(std::string_view name, ScheduleKind& out);
Status ParseName(std::string_view name, ConsistencyMode& out);
Status ParseName(std::string_view name, ApplyMode& out);
Status ParseName(std::string_view name, ValueCodec& out);

// Checks ranges (name, dim, rows, initializer, the rule and its options, staleness, asp with aggregated, life) and that
// the parts fit together; the message names the table, the field, the value and what was expected.
Status Validate(const TableSpec& spec);

// Whether the table, cut into 2^partition_bits partitions, can be held: a dense partition is born whole, and takes at
// most limits::kDensePartitionBytesMax. kTooLarge, naming the table, its shape, the bytes and the limit.
Status ValidatePartitions(const TableSpec& spec, std::uint32_t partition_bits);

// The parts of Validate(TableSpec) that a job file has without a table; messages name the field only.
Status Validate(const OptimizerSpec& spec);
Status Validate(const ConsistencySpec& spec);
Status Validate(const LifeSpec& spec);
Status Validate(const TopKSpec& spec);

// Salt of a table's positions and initial values: a pure function of the job's seed and the table's name.
std::uint64_t TableSalt(std::uint64_t job_seed, std::string_view table_name);

}  // namespace tarn

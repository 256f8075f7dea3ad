// The specification of a table: shape, initial values, optimizer, consistency and codecs. Plain values. A worker
// requests a table with CreateTable; the scheduler applies the settings of the job and sends the spec to every node in
// the view.
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

// Initial values of a row: a pure function of (seed, table, key), independent of arrival order and number of servers.
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

// Options of a rule by name; absent ones have their default values.
using NamedOptions = std::map<std::string, float, std::less<>>;

// The update rule of a table, and the settings common to all rules.
struct OptimizerSpec {
  RuleName kind = "sgd";
  float learning_rate = 0.01f;
  NamedOptions options;
  float l2 = 0.0f;          // added to the gradient: l2 * value
  float clip_value = 0.0f;  // 0: off; else each gradient element is clipped to [-c, c]
  float clip_norm = 0.0f;   // 0: off; else a row's gradient is scaled to at most this norm
  ScheduleSpec schedule;
  // An option that is set to its default equals an absent one.
  friend bool operator==(const OptimizerSpec& a, const OptimizerSpec& b);
};

// The value of an option: as set, else its default; 0 if the rule does not have the option.
float OptionOf(const OptimizerSpec& spec, std::string_view name);

enum class ConsistencyMode : std::uint8_t { kBsp, kSsp, kAsp };
enum class ApplyMode : std::uint8_t { kImmediate, kAggregated };

struct ConsistencySpec {
  ConsistencyMode mode = ConsistencyMode::kBsp;
  std::uint32_t staleness = 0;  // ssp only: number of clocks that a worker may be ahead of the slowest
  ApplyMode apply = ApplyMode::kAggregated;
  // bsp and aggregated only: a clock closes without the contributions of up to this many slow workers (rule C8).
  std::uint16_t backup_workers = 0;
  // ssp only: by how many clocks a server may exceed `staleness` for a worker that would otherwise wait long (rule C9).
  std::uint16_t staleness_range = 0;
  friend bool operator==(const ConsistencySpec&, const ConsistencySpec&) = default;
};

// The maximum staleness of a pull, in clocks. 0 for bsp; also 0 for asp, which has no bound.
constexpr std::uint64_t StalenessBound(const ConsistencySpec& spec) {
  return spec.mode == ConsistencyMode::kSsp ? std::uint64_t{spec.staleness} + spec.staleness_range : 0;
}

// What workers push to a table: gradients of the loss; or, after local steps, deltas of the rows that they pulled, with
// the sign of a gradient: old minus new values. The same for all workers.
enum class PushedValues : std::uint8_t { kGradients, kDeltas };

// The encoding of values in messages. Pulls may use the first four, pushes all; sparse rows on servers are stored in
// one of the first three.
enum class ValueCodec : std::uint8_t {
  kFp32,
  kBf16,
  kFp16,
  kInt8,  // a row is an fp32 scale and a signed byte per value (kernels/quantize.h)
  kTopK,  // the largest values; the worker stores the rest (CompressionSpec)
  // A row is one or two fp32 scales and a few bits per value (kernels/low_bits.h).
  kQsgd,     // 4 bits, rounded stochastically
  kTernary,  // 2 bits, rounded stochastically
  kSign,     // 1 bit; the worker stores the error
  kOneBit,   // 1 bit and two scales; the worker stores the error
  // All rows of a push as a product of two thin matrices (kernels/low_rank.h); the worker stores the error.
  kLowRank,
};

// Whether the rows of a push are encoded together, not one by one.
constexpr bool IsOfWholePush(ValueCodec codec) { return codec == ValueCodec::kTopK || codec == ValueCodec::kLowRank; }

// Encoded bytes of a row of `dim` values; the decoded bytes for a codec of whole pushes.
constexpr std::size_t CodecRowBytes(ValueCodec codec, std::uint32_t dim) {
  const auto packed = [dim](std::size_t bits) { return (dim * bits + 7) / 8; };
  switch (codec) {
    case ValueCodec::kFp32:
    case ValueCodec::kTopK:
    case ValueCodec::kLowRank: break;
    case ValueCodec::kBf16:
    case ValueCodec::kFp16: return dim * sizeof(std::uint16_t);
    case ValueCodec::kInt8: return sizeof(float) + dim;
    case ValueCodec::kQsgd: return sizeof(float) + packed(4);
    case ValueCodec::kTernary: return sizeof(float) + packed(2);
    case ValueCodec::kSign: return sizeof(float) + packed(1);
    case ValueCodec::kOneBit: return 2 * sizeof(float) + packed(1);
  }
  return dim * sizeof(float);
}

// Whether each value is encoded separately, so that rows can be stored in the codec.
constexpr bool IsPlain(ValueCodec codec) { return codec <= ValueCodec::kFp16; }
// Whether pulls may use the codec.
constexpr bool IsForPulls(ValueCodec codec) { return codec <= ValueCodec::kInt8; }
// Whether a worker stores what its pushes leave out, for the next push of the same key (rule W5).
constexpr bool KeepsResiduals(ValueCodec codec) {
  return IsOfWholePush(codec) || codec == ValueCodec::kSign || codec == ValueCodec::kOneBit;
}

// Admission and expiry of the rows of a sparse table (docs/protocol.md, "The life of a row"). A table with life on
// stores the time of the last push and a score with each row. The numbers below may change between runs.
struct LifeSpec {
  bool on = false;
  // Admission. Pushes before admission are dropped and counted.
  std::uint32_t admit_count = 1;   // a key gets a row at its n-th push
  float admit_probability = 1.0f;  // from that push on, each push creates the row with this probability
  // Expiry; 0: none.
  std::uint64_t expire_clocks = 0;   // clocks without a push
  double expire_seconds = 0;         // seconds of wall-clock time without a push
  float min_score = 0.0f;            // rows with a lower score expire
  float score_decay = 1.0f;          // factor of the score per clock; each push adds 1
  std::uint64_t rows_max = 0;        // of the table; rows with the lowest scores, or the oldest push, expire first
  std::uint64_t sweep_clocks = 100;  // rows expire at multiples of this (rule R4)
  friend bool operator==(const LifeSpec&, const LifeSpec&) = default;
};

// Settings of push codecs that keep residuals: what a push leaves out is added to the next gradient of the same key
// (rule W5).
struct CompressionSpec {
  float share = 0.01f;              // kTopK: share of the rows (sparse) or values (dense) that a push sends
  float momentum = 0.0f;            // kTopK: momentum of the worker's gradients, before the selection; 0: none
  std::uint64_t warmup_clocks = 0;  // kTopK: number of first clocks, in which the share falls exponentially to `share`
  std::uint32_t rank = 2;           // kLowRank: columns of the two matrices
  std::uint64_t residual_bytes = limits::kResidualBytesDefault;  // memory of a worker for residuals of a sparse table
  friend bool operator==(const CompressionSpec&, const CompressionSpec&) = default;
};

struct TableSpec {
  TableId id;
  std::string name;
  TableKind kind = TableKind::kSparse;
  std::uint32_t dim = 1;   // values per row: 1..limits::kRowDimMax
  std::uint64_t rows = 0;  // dense only: keys are 0..rows-1
  InitializerSpec initializer;
  OptimizerSpec optimizer;
  ConsistencySpec consistency;
  ValueCodec pull_codec = ValueCodec::kFp32;
  ValueCodec push_codec = ValueCodec::kFp32;
  ValueCodec row_codec = ValueCodec::kFp32;  // of values on servers: fp32, bf16 or fp16; dense tables: fp32
  LifeSpec life;                             // sparse only
  CompressionSpec compression;               // for push codecs that keep residuals
  PushedValues pushes = PushedValues::kGradients;
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// The number of keys of a sparse table for which a worker can store residuals in residual_bytes.
std::uint64_t ResidualRowsMax(const TableSpec& spec);

// Names in the job file: "dense", "bsp", ...
std::string_view Name(TableKind v);
std::string_view Name(PushedValues v);
std::string_view Name(InitializerKind v);
std::string_view Name(ScheduleKind v);
std::string_view Name(ConsistencyMode v);
std::string_view Name(ApplyMode v);
std::string_view Name(ValueCodec v);

// Parses a name. kInvalidArgument if it is unknown; `out` is then unchanged, and the message has the name, all known
// names and the nearest: `unknown mode 'aps': expected one of bsp, ssp, asp; the nearest is 'asp'`.
Status ParseName(std::string_view name, TableKind& out);
Status ParseName(std::string_view name, PushedValues& out);
Status ParseName(std::string_view name, InitializerKind& out);
Status ParseName(std::string_view name, ScheduleKind& out);
Status ParseName(std::string_view name, ConsistencyMode& out);
Status ParseName(std::string_view name, ApplyMode& out);
Status ParseName(std::string_view name, ValueCodec& out);

// Checks the ranges of all fields, and that the settings can be combined (such as asp, which excludes aggregated).
// kInvalidArgument; the message names the table, the field, the value and what was expected.
Status Validate(const TableSpec& spec);

// Checks that each of 2^partition_bits partitions of a dense table, which is allocated at once, has at most
// limits::kDensePartitionBytesMax bytes. kTooLarge names the table, its shape, the bytes and the limit.
Status ValidatePartitions(const TableSpec& spec, std::uint32_t partition_bits);

// The parts of Validate(TableSpec) for sections of a job file; messages name only the field.
Status Validate(const OptimizerSpec& spec);
Status Validate(const ConsistencySpec& spec);
Status Validate(const LifeSpec& spec);
Status Validate(const CompressionSpec& spec);

// Salt of a table's positions and initial values: a pure function of the job's seed and the table's name.
std::uint64_t TableSalt(std::uint64_t job_seed, std::string_view table_name);

}  // namespace tarn

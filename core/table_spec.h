// What a table is: shape, initial values, optimizer, consistency and codecs. Plain values, made from the job
// file by the scheduler's and the models' code and sent to every shard with CreateTable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
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

enum class OptimizerKind : std::uint8_t {
  kSgd,
  kMomentum,
  kNesterov,
  kAdagrad,
  kRowWiseAdagrad,
  kRmsProp,
  kAdam,
  kAdamW,
  kFtrl,
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

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01f;
  float momentum = 0.9f;             // momentum, Nesterov
  float rho = 0.9f;                  // RMSProp: decay of the squared gradient
  float beta1 = 0.9f;                // Adam, AdamW
  float beta2 = 0.999f;              // Adam, AdamW
  float epsilon = 1e-8f;             // Adagrad, row-wise Adagrad, RMSProp, Adam, AdamW
  float initial_accumulator = 0.0f;  // Adagrad, row-wise Adagrad: start of the squared sum; FTRL: of n
  float weight_decay = 0.0f;         // AdamW: decoupled
  float ftrl_beta = 1.0f;            // FTRL-proximal
  float ftrl_l1 = 0.0f;
  float ftrl_l2 = 0.0f;
  float l2 = 0.0f;          // added to the gradient: l2 * value (all kinds)
  float clip_value = 0.0f;  // 0: off; else each gradient element is cut to [-c, c]
  float clip_norm = 0.0f;   // 0: off; else a row's gradient is scaled to at most this norm
  ScheduleSpec schedule;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

enum class ConsistencyMode : std::uint8_t { kBsp, kSsp, kAsp };
enum class ApplyMode : std::uint8_t { kImmediate, kAggregated };

struct ConsistencySpec {
  ConsistencyMode mode = ConsistencyMode::kBsp;
  std::uint32_t staleness = 0;  // ssp only: how many clocks a worker may be ahead of the slowest
  ApplyMode apply = ApplyMode::kAggregated;
  friend bool operator==(const ConsistencySpec&, const ConsistencySpec&) = default;
};

// How values travel. Master values on servers are fp32.
enum class ValueCodec : std::uint8_t { kFp32, kBf16, kFp16 };

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
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// Names as the job file spells them: "sgd", "row_wise_adagrad", "bsp", ...
std::string_view Name(TableKind v);
std::string_view Name(InitializerKind v);
std::string_view Name(OptimizerKind v);
std::string_view Name(ScheduleKind v);
std::string_view Name(ConsistencyMode v);
std::string_view Name(ApplyMode v);
std::string_view Name(ValueCodec v);

// The value of a name; `out` stays as it is on failure, and the message holds the name, all known names and the
// nearest: `unknown optimizer 'adagrat': expected one of sgd, momentum, ...; the nearest is 'adagrad'`.
Status ParseName(std::string_view name, TableKind& out);
Status ParseName(std::string_view name, InitializerKind& out);
Status ParseName(std::string_view name, OptimizerKind& out);
Status ParseName(std::string_view name, ScheduleKind& out);
Status ParseName(std::string_view name, ConsistencyMode& out);
Status ParseName(std::string_view name, ApplyMode& out);
Status ParseName(std::string_view name, ValueCodec& out);

// Floats of optimizer state behind a row's `dim` values: Adam 2*dim + 1 (m, v, step count of the row),
// FTRL 2*dim (z, n), row-wise Adagrad 1, momentum/Nesterov/Adagrad/RMSProp dim, SGD 0.
std::uint32_t SlotFloats(OptimizerKind kind, std::uint32_t dim);

// Checks ranges (name, dim, rows, initializer, rates, staleness, asp with aggregated); the message names the
// table, the field, the value and what was expected.
Status Validate(const TableSpec& spec);

// Whether the table, cut into 2^partition_bits partitions, can be held: a dense partition is born whole, and takes at
// most limits::kDensePartitionBytesMax. kTooLarge, naming the table, its shape, the bytes and the limit.
Status ValidatePartitions(const TableSpec& spec, std::uint32_t partition_bits);

// The parts of Validate(TableSpec) that a job file has without a table; messages name the field only.
Status Validate(const OptimizerSpec& spec);
Status Validate(const ConsistencySpec& spec);

// Salt of a table's positions and initial values: a pure function of the job's seed and the table's name.
std::uint64_t TableSalt(std::uint64_t job_seed, std::string_view table_name);

}  // namespace tarn

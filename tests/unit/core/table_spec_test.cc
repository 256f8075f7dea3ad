// Shows table specs: the names of all enumerators, the size of optimizer state, every error of Validate at the limit
// and one past it, and salts.
#include "core/table/table_spec.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "core/limits.h"
#include "core/row_layout.h"
#include "core/table/table_shape.h"

namespace tarn {
namespace {

template <typename E>
void CheckNames(std::initializer_list<std::string_view> names) {
  int i = 0;
  for (std::string_view name : names) {
    const auto value = static_cast<E>(i++);
    EXPECT_EQ(Name(value), name);
    E parsed{};
    ASSERT_TRUE(ParseName(name, parsed)) << name;
    EXPECT_EQ(parsed, value);
  }
  EXPECT_EQ(Name(static_cast<E>(i)), "unknown") << "a name is missing in this test";
}

TEST(Names, BothWays) {
  CheckNames<TableKind>({"dense", "sparse"});
  CheckNames<InitializerKind>({"zero", "constant", "uniform", "normal"});
  CheckNames<ScheduleKind>({"constant", "step", "cosine"});
  CheckNames<ConsistencyMode>({"bsp", "ssp", "asp"});
  CheckNames<ApplyMode>({"immediate", "aggregated"});
  CheckNames<ValueCodec>({"fp32", "bf16", "fp16", "int8", "topk", "qsgd", "ternary", "sign", "one_bit", "low_rank"});
}

TEST(Names, ErrorsOfUnknownNamesSuggestTheNearest) {
  RuleName kind = "ftrl";
  const auto status = ParseName("adagrat", kind);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  const std::string message = status.error().message;
  EXPECT_TRUE(message.starts_with("unknown optimizer 'adagrat': expected one of sgd, momentum, nesterov, adagrad, "))
      << message;
  EXPECT_TRUE(message.ends_with("; the nearest is 'adagrad'")) << message;
  EXPECT_EQ(kind, "ftrl") << "unchanged";
  ValueCodec codec{};
  EXPECT_EQ(ParseName("BF16", codec).error().message,
            "unknown codec 'BF16': expected one of fp32, bf16, fp16, int8, topk, qsgd, ternary, sign, one_bit, "
            "low_rank; the nearest is 'bf16'");
}

TEST(ValidatePartitions, ADensePartitionHasABound) {
  TableSpec spec;
  spec.name = "d";
  spec.kind = TableKind::kDense;
  spec.dim = 16;
  spec.optimizer.kind = "adagrad";  // 128 bytes a row
  const std::uint64_t rows_max = limits::kDensePartitionBytesMax / 128;
  for (std::uint32_t bits : {0u, 3u, limits::kPartitionBitsMax}) {
    spec.rows = rows_max << bits;
    EXPECT_TRUE(ValidatePartitions(spec, bits)) << bits;
    ++spec.rows;
    EXPECT_FALSE(ValidatePartitions(spec, bits)) << bits;
  }
  spec.rows = rows_max + 1;
  const auto status = ValidatePartitions(spec, 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(status.error().message,
            "table 'd': 536870913 dense rows of dim 16 and 16 slots in 1 partitions: 68719476864 bytes in one, at most "
            "68719476736; more partitions ([fleet] partition_bits) or fewer rows");
  spec.rows = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE(ValidatePartitions(spec, limits::kPartitionBitsMax));
  spec.kind = TableKind::kSparse;
  EXPECT_TRUE(ValidatePartitions(spec, 0));
}

TEST(SlotFloats, AsDocumented) {
  for (std::uint32_t dim : {1u, 8u, 4096u}) {
    EXPECT_EQ(SlotFloats("sgd", dim), 0u);
    EXPECT_EQ(SlotFloats("momentum", dim), dim);
    EXPECT_EQ(SlotFloats("nesterov", dim), dim);
    EXPECT_EQ(SlotFloats("adagrad", dim), dim);
    EXPECT_EQ(SlotFloats("row_wise_adagrad", dim), 1u);
    EXPECT_EQ(SlotFloats("rmsprop", dim), dim);
    EXPECT_EQ(SlotFloats("adam", dim), 2 * dim + 1);
    EXPECT_EQ(SlotFloats("adamw", dim), 2 * dim + 1);
    EXPECT_EQ(SlotFloats("ftrl", dim), 2 * dim);
  }
}

TableSpec Good() {
  TableSpec spec;
  spec.name = "factors";
  spec.dim = 8;
  return spec;
}

std::string Refusal(const std::function<void(TableSpec&)>& change) {
  TableSpec spec = Good();
  change(spec);
  const auto status = Validate(spec);
  if (status) return "accepted";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(Validate, Shape) {
  EXPECT_TRUE(Validate(Good()));
  EXPECT_EQ(Refusal([](auto& s) { s.name.clear(); }), "table '': name of 0 bytes, expected 1 to 128");
  EXPECT_EQ(Refusal([](auto& s) { s.name.assign(128, 'n'); }), "accepted");
  EXPECT_NE(Refusal([](auto& s) { s.name.assign(129, 'n'); }).find("name of 129 bytes"), std::string::npos);
  EXPECT_EQ(Refusal([](auto& s) { s.name = "caf\xc3\xa9"; }), "accepted");
  EXPECT_NE(Refusal([](auto& s) { s.name = "caf\xe9"; }).find("expected UTF-8"), std::string::npos);
  EXPECT_EQ(Refusal([](auto& s) { s.dim = 0; }), "table 'factors': dim = 0: expected 1 to 4096");
  EXPECT_EQ(Refusal([](auto& s) { s.dim = 4096; }), "accepted");
  EXPECT_EQ(Refusal([](auto& s) { s.dim = 4097; }), "table 'factors': dim = 4097: expected 1 to 4096");
  EXPECT_EQ(Refusal([](auto& s) { s.kind = TableKind::kDense; }),
            "table 'factors': rows = 0: a dense table has at least one row");
  EXPECT_EQ(Refusal([](auto& s) { s.kind = TableKind::kDense, s.rows = 1; }), "accepted");
  EXPECT_EQ(Refusal([](auto& s) { s.rows = 5; }),
            "table 'factors': rows = 5: a sparse table has no number of rows (0)");
}

TEST(Validate, UnknownEnumValuesAreRefused) {
  EXPECT_EQ(Refusal([](auto& s) { s.kind = TableKind(9); }), "table 'factors': kind or codec is not a known one");
  EXPECT_EQ(Refusal([](auto& s) { s.pull_codec = ValueCodec(10); }),
            "table 'factors': kind or codec is not a known one");
  EXPECT_EQ(Refusal([](auto& s) { s.initializer.kind = InitializerKind(9); }),
            "table 'factors': initializer: not a known kind");
  EXPECT_EQ(Refusal([](auto& s) { s.optimizer.schedule.kind = ScheduleKind(7); }),
            "table 'factors': schedule = 7: not a known kind");
  EXPECT_EQ(Refusal([](auto& s) { s.consistency.apply = ApplyMode(7); }),
            "table 'factors': mode or apply is not a known one");
}

TEST(Validate, Initializer) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Refusal([&](auto& s) { s.initializer = {InitializerKind::kConstant, nan, 0}; }),
            "table 'factors': initializer: a and b must be finite numbers");
  EXPECT_EQ(Refusal([](auto& s) { s.initializer = {InitializerKind::kUniform, 1, -1}; }),
            "table 'factors': initializer: uniform from 1 to -1: the low end comes first");
  EXPECT_EQ(Refusal([](auto& s) { s.initializer = {InitializerKind::kNormal, 0, -0.5f}; }),
            "table 'factors': initializer: normal with standard deviation -0.5: expected >= 0");
  EXPECT_EQ(Refusal([](auto& s) { s.initializer = {InitializerKind::kNormal, 0, 0}; }), "accepted");
}

TEST(Validate, OptimizerRanges) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Refusal([](auto& s) { s.optimizer.learning_rate = -1; }),
            "table 'factors': learning_rate = -1: expected a number >= 0 and <= 1000000");
  EXPECT_NE(Refusal([&](auto& s) { s.optimizer.learning_rate = nan; }).find("learning_rate"), std::string::npos);
  const auto refusal_of = [](const char* kind, const char* option, float value) {
    return Refusal([&](auto& s) { s.optimizer = {.kind = kind, .options = {{option, value}}}; });
  };
  EXPECT_EQ(refusal_of("adam", "beta2", 1), "table 'factors': beta2 = 1: expected a number >= 0 and < 1");
  EXPECT_EQ(refusal_of("adagrad", "epsilon", 0), "table 'factors': epsilon = 0: expected a number > 0 and <= 1000000");
  EXPECT_NE(refusal_of("adam", "beta1", nan).find("beta1"), std::string::npos);
  EXPECT_EQ(refusal_of("adagrad", "momentum", 0.5f),
            "table 'factors': unknown option of adagrad 'momentum': expected one of epsilon, initial_accumulator");
  EXPECT_EQ(refusal_of("sgd", "momentum", 0.5f), "table 'factors': 'momentum': sgd has no options of its own");
  EXPECT_NE(refusal_of("agradad", "epsilon", 1).find("unknown optimizer 'agradad'"), std::string::npos);
  EXPECT_EQ(Refusal([](auto& s) { s.optimizer.kind = "ftrl", s.optimizer.learning_rate = 0; }),
            "table 'factors': learning_rate = 0: ftrl divides by it, so it must be > 0");
  EXPECT_EQ(Refusal([](auto& s) { s.optimizer.schedule.kind = ScheduleKind::kStep; }),
            "table 'factors': period_clocks = 0: schedule = \"step\" needs a period of at least 1 clock");
  EXPECT_EQ(Refusal([](auto& s) { s.optimizer.schedule.warmup_clocks = ~0ull; }),
            "table 'factors': warmup_clocks = 18446744073709551615: expected 0 to 1099511627776");
}

TEST(Validate, Consistency) {
  EXPECT_EQ(Refusal([](auto& s) { s.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kAggregated}; }),
            "table 'factors': apply = \"aggregated\" with mode = \"asp\": a clock's pushes would wait for the whole "
            "cohort, for which asp never waits; use apply = \"immediate\", or mode = \"bsp\" or \"ssp\"");
  for (auto mode : {ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp})
    EXPECT_EQ(Refusal([&](auto& s) { s.consistency = {mode, 0, ApplyMode::kImmediate}; }), "accepted");
  const auto ssp = [](std::uint32_t staleness) {
    return Refusal([&](auto& s) { s.consistency = {ConsistencyMode::kSsp, staleness, ApplyMode::kAggregated}; });
  };
  EXPECT_EQ(ssp(limits::kStalenessMax), "accepted");
  EXPECT_EQ(ssp(limits::kStalenessMax + 1), "table 'factors': staleness = 1048577: expected 0 to 1048576");
  const auto range = [](ConsistencyMode mode, std::uint32_t staleness, std::uint16_t clocks) {
    return Refusal([&](auto& s) {
      s.consistency = {mode, staleness, ApplyMode::kImmediate};
      s.consistency.staleness_range = clocks;
    });
  };
  EXPECT_EQ(range(ConsistencyMode::kSsp, 3, limits::kStalenessRangeMax), "accepted");
  EXPECT_EQ(range(ConsistencyMode::kSsp, 3, limits::kStalenessRangeMax + 1),
            "table 'factors': staleness_range = 1025: expected 0 to 1024");
  EXPECT_EQ(range(ConsistencyMode::kSsp, limits::kStalenessMax, 1),
            "table 'factors': staleness = 1048576 and staleness_range = 1: expected at most 1048576 together");
  EXPECT_EQ(range(ConsistencyMode::kBsp, 0, 1),
            "table 'factors': staleness_range = 1 with mode = \"bsp\": only \"ssp\" has a bound on the staleness");
}

TEST(Validate, LowRankIsForDenseTables) {
  const auto low_rank = [](TableKind kind, std::uint32_t rank) {
    return Refusal([&](auto& s) {
      s.kind = kind;
      s.rows = kind == TableKind::kDense ? 10 : 0;
      s.push_codec = ValueCodec::kLowRank;
      s.compression.rank = rank;
    });
  };
  EXPECT_EQ(low_rank(TableKind::kDense, limits::kPushRankMax), "accepted");
  EXPECT_EQ(low_rank(TableKind::kDense, limits::kPushRankMax + 1), "table 'factors': push_rank = 65: expected 1 to 64");
  EXPECT_EQ(low_rank(TableKind::kSparse, 1),
            "table 'factors': push_codec = \"low_rank\": for the matrices of dense tables; this one is sparse");
}

TEST(Validate, Life) {
  const auto life = [](auto set) {
    return Refusal([&](auto& s) {
      s.life.on = true;
      set(s.life);
    });
  };
  EXPECT_EQ(life([](LifeSpec&) {}), "accepted");
  EXPECT_EQ(life([](auto& l) { l.expire_clocks = limits::kLifeClocksMax, l.rows_max = 9; }), "accepted");
  EXPECT_EQ(life([](auto& l) { l.expire_clocks = limits::kLifeClocksMax + 1; }),
            "table 'factors': expire_clocks = 1073741825: expected 0 to 1073741824");
  EXPECT_EQ(life([](auto& l) { l.admit_count = limits::kAdmitCountMax; }), "accepted");
  EXPECT_EQ(life([](auto& l) { l.admit_count = limits::kAdmitCountMax + 1; }),
            "table 'factors': admit_count = 1048577: expected 1 to 1048576");
  EXPECT_EQ(life([](auto& l) { l.admit_count = 0; }), "table 'factors': admit_count = 0: expected 1 to 1048576");
  EXPECT_EQ(life([](auto& l) { l.admit_probability = 0; }),
            "table 'factors': admit_probability = 0: expected a number > 0 and <= 1");
  EXPECT_EQ(life([](auto& l) { l.sweep_clocks = 0; }), "table 'factors': sweep_clocks = 0: expected 1 to 1073741824");
  EXPECT_EQ(life([](auto& l) { l.min_score = 0.5f, l.score_decay = 0.9f; }), "accepted");
  EXPECT_EQ(life([](auto& l) { l.min_score = 0.5f; }),
            "table 'factors': min_score = 0.5: needs a score_decay below 1, or no score ever falls");
  EXPECT_NE(life([](auto& l) { l.expire_clocks = 1, l.expire_seconds = 1; }).find("not both"), std::string::npos);
  EXPECT_NE(life([](auto& l) { l.expire_clocks = 1, l.score_decay = 0.5f; }).find("not by both"), std::string::npos);
  EXPECT_EQ(Refusal([](auto& s) { s.life.rows_max = 1; }),
            "table 'factors': life = false: the other keys of a life would mean nothing");
  EXPECT_NE(Refusal([](auto& s) { s.kind = TableKind::kDense, s.rows = 1, s.life.on = true; }).find("a dense table"),
            std::string::npos);
}

TEST(Validate, RowCodec) {
  EXPECT_EQ(Refusal([](auto& s) { s.row_codec = ValueCodec::kBf16; }), "accepted");
  EXPECT_EQ(Refusal([](auto& s) { s.row_codec = ValueCodec(10); }),
            "table 'factors': kind or codec is not a known one");
  EXPECT_EQ(Refusal([](auto& s) { s.kind = TableKind::kDense, s.rows = 1, s.row_codec = ValueCodec::kFp16; }),
            "table 'factors': row_codec = \"fp16\": a dense table keeps fp32");
  EXPECT_EQ(Refusal([](auto& s) { s.row_codec = ValueCodec::kInt8; }),
            "table 'factors': row_codec = \"int8\": expected fp32, bf16 or fp16 (the others are for values on their "
            "way)");
}

TEST(Validate, TopK) {
  const auto top_k = [](auto change) {
    return Refusal([&](TableSpec& s) {
      s.push_codec = ValueCodec::kTopK;
      change(s.compression);
    });
  };
  EXPECT_EQ(top_k([](CompressionSpec&) {}), "accepted");
  EXPECT_EQ(top_k([](CompressionSpec& t) { t.share = 1; }), "accepted");
  EXPECT_EQ(top_k([](CompressionSpec& t) { t.share = 0; }),
            "table 'factors': push_topk = 0: expected a number > 0 and <= 1");
  EXPECT_EQ(top_k([](CompressionSpec& t) { t.residual_bytes = limits::kResidualBytesMin; }), "accepted");
  EXPECT_EQ(top_k([](CompressionSpec& t) { t.residual_bytes = limits::kResidualBytesMin - 1; }),
            "table 'factors': residual_memory = 1023: expected 1KiB to 64GiB");
  EXPECT_EQ(top_k([](CompressionSpec& t) { t.residual_bytes = limits::kResidualBytesMax; }), "accepted");
  EXPECT_NE(top_k([](CompressionSpec& t) { t.residual_bytes = limits::kResidualBytesMax + 1; }), "accepted");
  EXPECT_EQ(
      Refusal([](auto& s) { s.pull_codec = ValueCodec::kTopK; }),
      "table 'factors': pull_codec = \"topk\": expected fp32, bf16, fp16 or int8 (the others are for push_codec)");
  EXPECT_NE(Refusal([](auto& s) { s.row_codec = ValueCodec::kTopK; }), "accepted");
}

TEST(Validate, Int8IsRefusedForRowsThatItMakesNoSmaller) {
  EXPECT_EQ(Refusal([](auto& s) { s.dim = 2, s.pull_codec = s.push_codec = ValueCodec::kInt8; }), "accepted");
  EXPECT_EQ(Refusal([](auto& s) { s.dim = 1, s.pull_codec = ValueCodec::kInt8; }),
            "table 'factors': pull_codec = \"int8\" with dim = 1: a row would take 5 bytes, more than the 4 of fp32; "
            "expected fp32, bf16 or fp16");
  EXPECT_NE(Refusal([](auto& s) { s.dim = 1, s.push_codec = ValueCodec::kInt8; }).find("push_codec = \"int8\""),
            std::string::npos);
}

TEST(CodecRowBytes, OfEveryCodec) {
  EXPECT_EQ(CodecRowBytes(ValueCodec::kFp32, 5), 20u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kBf16, 5), 10u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kFp16, 5), 10u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kInt8, 5), 9u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kTopK, 5), 20u);  // once decoded
  EXPECT_EQ(CodecRowBytes(ValueCodec::kQsgd, 5), 7u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kTernary, 5), 6u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kSign, 5), 5u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kSign, 9), 6u);
  EXPECT_EQ(CodecRowBytes(ValueCodec::kOneBit, 5), 9u);
}

TEST(RowLayout, WordsOfARecord) {
  TableSpec spec = Good();
  spec.dim = 5;
  spec.optimizer.kind = "adam";
  EXPECT_EQ(RowWords(spec), 5u + 11u);
  spec.row_codec = ValueCodec::kBf16;
  spec.life.on = true;
  EXPECT_EQ(LayoutOf(spec).value_words, 3u);
  EXPECT_EQ(RowWords(spec), 3u + 11u + 2u);
}

TEST(ShapeDifference, IncludesTheCodecOfRowsAndTheKindOfLife) {
  TableSpec a = Good(), b = Good();
  b.row_codec = ValueCodec::kFp16;
  EXPECT_EQ(ShapeDifference(a, "here", b, "there"), "row_codec is fp32 here and fp16 there");
  b = Good();
  b.life.on = true;
  EXPECT_EQ(ShapeDifference(a, "here", b, "there"), "life is none here and in clocks there");
  a.life.on = true;
  a.life.expire_seconds = 5;
  EXPECT_EQ(ShapeDifference(a, "here", b, "there"), "life is in seconds here and in clocks there");
  a.life = {.on = true, .expire_clocks = 7};
  EXPECT_EQ(ShapeDifference(a, "here", b, "there"), "");
  EXPECT_EQ(SettingsChange(b, a), "expire_clocks 0 -> 7");
}

TEST(ShapeDifference, RulesWithoutStateMayReplaceEachOther) {
  TableSpec a = Good(), b = Good();
  a.optimizer.kind = "sgd";
  b.optimizer = {
      .kind = "delay_threshold_sgd", .learning_rate = a.optimizer.learning_rate, .options = {{"delay_max", 4}}};
  EXPECT_EQ(ShapeDifference(a, "here", b, "there"), "");
  EXPECT_EQ(SettingsChange(a, b), "kind sgd -> delay_threshold_sgd, delay_max 4");
  EXPECT_EQ(SettingsChange(b, a), "kind delay_threshold_sgd -> sgd");
  for (const char* kind : {"momentum", "gap_aware", "delay_adaptive_sgd"}) {
    b.optimizer = {.kind = kind};
    EXPECT_EQ(ShapeDifference(a, "here", b, "there"), "optimizer is sgd here and " + std::string(kind) + " there");
    EXPECT_NE(ShapeDifference(b, "here", a, "there"), "");
  }
}

TEST(TableSalt, DependsOnSeedAndNameAlone) {
  EXPECT_EQ(TableSalt(1, "linear"), TableSalt(1, "linear"));
  std::set<std::uint64_t> salts;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    for (std::string_view name : {"linear", "factors", "dense_0", "dense_1", ""}) salts.insert(TableSalt(seed, name));
  EXPECT_EQ(salts.size(), 250u);
}

}  // namespace
}  // namespace tarn

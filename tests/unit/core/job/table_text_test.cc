// Shows how tables are read from text: every key, defaults, and each error with its place.
#include "core/job/table_text.h"

#include <gtest/gtest.h>

#include <string>

#include "core/table/update_rule.h"

namespace tarn {
namespace {

TEST(TableText, AnEmptyTextIsADefaultTable) {
  const auto spec = ParseTable("users", "");
  ASSERT_TRUE(spec) << spec.error().message;
  TableSpec expected;
  expected.name = "users";
  EXPECT_EQ(*spec, expected);
}

TEST(TableText, WithoutAnOptimizerATableHasThatOfItsRole) {
  Job job;
  job.optimizer.embedding = {.kind = "adagrad", .learning_rate = 0.5f};
  job.optimizer.embedding.options["epsilon"] = 0.25f;
  job.optimizer.dense = {.kind = "adam"};
  EXPECT_EQ(ParseTable("t", "", job)->optimizer, job.optimizer.embedding);
  EXPECT_EQ(ParseTable("t", "kind = 'dense'\nrows = 3", job)->optimizer, job.optimizer.dense);
  EXPECT_EQ(ParseTable("t", "[optimizer]\nlearning_rate = 2", job)->optimizer.kind, OptimizerSpec().kind)
      << "a section inherits nothing";
}

TEST(TableText, ATableIsValidAsTheJobRunsIt) {
  Job job;
  const char* text = "[optimizer]\nkind = 'dc_asgd'";
  const auto aggregated = ParseTable("t", text, job);
  ASSERT_FALSE(aggregated) << "the sum of several workers' gradients has no one delay";
  EXPECT_NE(aggregated.error().message.find("aggregated"), std::string::npos);
  job.consistency.mode = ConsistencyMode::kAsp;
  job.consistency.apply = ApplyMode::kImmediate;
  const auto spec = ParseTable("t", text, job);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->consistency, job.consistency);
}

TEST(TableText, EveryKeyIsRead) {
  const auto spec = ParseTable("w", R"(
kind = "dense"
dim = 3
rows = 7
pushes = "deltas"
[initializer]
kind = "uniform"
low = -0.5
high = 2
[optimizer]
kind = "adam"
learning_rate = 0.25
beta1 = 0.5
)");
  ASSERT_TRUE(spec) << spec.error().message;
  TableSpec expected;
  expected.name = "w";
  expected.kind = TableKind::kDense;
  expected.dim = 3;
  expected.rows = 7;
  expected.pushes = PushedValues::kDeltas;
  expected.initializer = {InitializerKind::kUniform, -0.5f, 2.0f};
  expected.optimizer.kind = "adam";
  expected.optimizer.learning_rate = 0.25f;
  expected.optimizer.options["beta1"] = 0.5f;
  EXPECT_EQ(*spec, expected);
}

TEST(TableText, InitializersHaveNamesForTheirNumbers) {
  const auto initializer = [](const char* text) {
    const auto spec = ParseTable("t", std::string("[initializer]\n") + text);
    EXPECT_TRUE(spec) << spec.error().message;
    return spec->initializer;
  };
  EXPECT_EQ(initializer("kind = 'zero'"), (InitializerSpec{InitializerKind::kZero, 0, 0}));
  EXPECT_EQ(initializer("kind = 'constant'\nvalue = 2"), (InitializerSpec{InitializerKind::kConstant, 2, 0}));
  EXPECT_EQ(initializer("kind = 'normal'\nmean = 1\nstddev = 0.5"),
            (InitializerSpec{InitializerKind::kNormal, 1, 0.5}));
  EXPECT_EQ(initializer("kind = 'normal'\nstddev = 0.5"), (InitializerSpec{InitializerKind::kNormal, 0, 0.5}));
}

TEST(TableText, ErrorsNamePlaceValueAndExpectation) {
  const auto refusal = [](const char* text) {
    const auto spec = ParseTable("t", text);
    EXPECT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument) << text;
    return spec ? "" : spec.error().message;
  };
  EXPECT_EQ(refusal("dim = 0"), "table 't':1: dim: expected 1 to 4096, found 0");
  EXPECT_EQ(refusal("dim = 'wide'"), "table 't':1: dim: expected an integer, found a string");
  EXPECT_EQ(refusal("\ndims = 2"), "table 't':2: unknown key 'dims'; the nearest known one is 'dim'");
  std::string names;
  for (const UpdateRule* rule : UpdateRules()) names += (names.empty() ? "" : ", ") + std::string(rule->name);
  EXPECT_TRUE(names.starts_with("sgd, momentum, nesterov, adagrad, ")) << names;
  EXPECT_EQ(refusal("[optimizer]\nkind = 'adagrat'"),
            "table 't':2: optimizer.kind: unknown optimizer 'adagrat': expected one of " + names +
                "; the nearest is 'adagrad'");
  EXPECT_EQ(refusal("[optimizer]\nlearning_rate = -1"),
            "table 't':2: optimizer.learning_rate: expected a number >= 0 and <= 1000000, found -1");
  EXPECT_EQ(refusal("[initializer]\nkind = 'normal'\nlow = 1").substr(0, 45),
            "table 't':3: initializer: unknown key 'low'; ");
  EXPECT_EQ(refusal("initializer = 3"), "table 't':1: initializer: expected a table, [initializer], found an integer");
  // Errors of the whole table are found by Validate.
  EXPECT_NE(refusal("kind = 'dense'").find("'t'"), std::string::npos);
  EXPECT_NE(refusal("[initializer]\nkind = 'uniform'\nlow = 1\nhigh = 0").find("the low end comes first"),
            std::string::npos);
  EXPECT_FALSE(ParseTable("", ""));
  EXPECT_FALSE(ParseTable("t", "dim = = 3"));
}

}  // namespace
}  // namespace tarn

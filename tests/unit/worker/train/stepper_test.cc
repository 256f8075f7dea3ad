// Shows that a step in parts gives the whole batch's gradients, that recomputation changes no bit, and that both need
// less memory; also the error for a missing GPU, and the scale of the loss for gradients that overflow fp16.
#include "worker/train/stepper.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/unit/worker/train/step_cases.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kRows = 300;

StepResult RunOnce(const StepShape& shape, const TrainSection& train, std::size_t batch_rows = kRows,
                   std::size_t rows = kRows, bool training = true) {
  StepCase step(shape, train, batch_rows);
  const Status made = step.MakeStepper();
  EXPECT_TRUE(made.has_value());
  return step.Run(rows, 7, training);
}

void ExpectNear(const StepResult& actual, const StepResult& expected) {
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (std::size_t t = 0; t < expected.gradients.size(); ++t) {
    ASSERT_EQ(actual.gradients[t].size(), expected.gradients[t].size());
    for (std::size_t i = 0; i < expected.gradients[t].size(); ++i)
      ASSERT_NEAR(actual.gradients[t][i], expected.gradients[t][i], 1e-6) << "table " << t << ", element " << i;
  }
  EXPECT_EQ(actual.quality.rows, expected.quality.rows);
  EXPECT_NEAR(actual.quality.loss_sum, expected.quality.loss_sum, 1e-6 * expected.quality.loss_sum);
}

class StepperTest : public ::testing::TestWithParam<StepShape> {};

TEST_P(StepperTest, PartsAddUpToTheBatch) {
  const StepResult whole = RunOnce(GetParam(), {});
  EXPECT_EQ(whole.quality.rows, kRows);
  double norm = 0;
  for (const auto& gradients : whole.gradients)
    for (float g : gradients) norm += double(g) * double(g);
  EXPECT_GT(norm, 1e-4);
  for (const std::uint32_t parts : {2u, 7u, 300u}) ExpectNear(RunOnce(GetParam(), {.accumulate = parts}), whole);
}

// The last batch of a set may be shorter, or empty if all its lines are malformed; batches of an evaluation are larger.
TEST_P(StepperTest, PartsOfABatchOfAnotherSize) {
  for (const std::size_t rows : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{700}})
    ExpectNear(RunOnce(GetParam(), {.accumulate = 4}, kRows, rows), RunOnce(GetParam(), {}, kRows, rows));
}

TEST_P(StepperTest, RecomputationChangesNoBit) {
  for (const std::uint32_t parts : {1u, 3u}) {
    const StepResult kept = RunOnce(GetParam(), {.accumulate = parts});
    const StepResult again = RunOnce(GetParam(), {.accumulate = parts, .recompute = true});
    EXPECT_EQ(again.gradients, kept.gradients);
    EXPECT_EQ(again.quality.loss_sum, kept.quality.loss_sum);
  }
}

TEST_P(StepperTest, RowsMayBeInTheMemoryOfTheStepper) {
  StepCase pulled(GetParam(), {}, kRows), placed(GetParam(), {}, kRows);
  ASSERT_TRUE(pulled.MakeStepper() && placed.MakeStepper());
  std::vector<Buffer> kept;
  placed.PlaceRows([&](const Buffer& rows) { return kept.emplace_back(rows).as_mutable<float>().data(); });
  EXPECT_EQ(placed.Run(kRows, 1).gradients, pulled.Run(kRows, 1).gradients);
}

TEST_P(StepperTest, PartsTakeLessMemory) {
  constexpr std::size_t kMany = 8'000;  // so many rows that weights are small in comparison
  const std::size_t whole = RunOnce(GetParam(), {}, kMany, kMany).activation_bytes;
  const std::size_t quarter = RunOnce(GetParam(), {.accumulate = 4}, kMany, kMany).activation_bytes;
  EXPECT_LT(quarter, whole * 27 / 100);
}

TEST_P(StepperTest, ClippingAppliesToTheWholeBatch) {
  const StepResult free = RunOnce(GetParam(), {});
  const StepResult clipped = RunOnce(GetParam(), {.clip_global_norm = 0.01, .accumulate = 3});
  double norm = 0;
  for (const auto& gradients : clipped.gradients)
    for (float g : gradients) norm += double(g) * double(g);
  EXPECT_NEAR(std::sqrt(norm), 0.01, 1e-6);
  const float ratio = clipped.gradients[0][0] / free.gradients[0][0];
  EXPECT_LT(ratio, 1.0f);
}

TEST_P(StepperTest, EvaluationHasNoGradients) {
  const StepResult trained = RunOnce(GetParam(), {.accumulate = 3}),
                   evaluated = RunOnce(GetParam(), {.accumulate = 3}, kRows, kRows, false);
  EXPECT_TRUE(evaluated.gradients.empty());
  EXPECT_EQ(evaluated.quality.loss_sum, trained.quality.loss_sum);
}

INSTANTIATE_TEST_SUITE_P(All, StepperTest, ::testing::ValuesIn(kStepShapes),
                         [](const auto& test) { return NameOf(test.param); });

TEST(StepperMemoryTest, RecomputationTakesLessMemory) {
  const StepShape dlrm{ModelKind::kDlrm, 3, 4, 2}, dcn{ModelKind::kDcnV2, 3, 0, 2};
  for (const StepShape& shape : {dlrm, dcn})
    EXPECT_LT(RunOnce(shape, {.recompute = true}, 8'000, 8'000).activation_bytes,
              RunOnce(shape, {}, 8'000, 8'000).activation_bytes)
        << NameOf(shape);
}

// The duration of the first step is not known, so it counts as a long one.
TEST(StepperLongTest, ALongStepIsComputedByAnotherThreadWithTheSameBits) {
  const StepShape shape{ModelKind::kDlrm, 3, 4, 2};
  StepCase beside(shape, {}, kRows), within(shape, {}, kRows);
  std::atomic<int> told = 0;
  const auto tell = [&] {
    ++told;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  ASSERT_TRUE(beside.MakeStepper({.done = tell, .long_step_seconds = 0}).has_value());
  ASSERT_TRUE(within.MakeStepper({.long_step_seconds = 1e9}).has_value());
  for (int i = 1; i <= 3; ++i) {
    const auto here = beside.Prepare(kRows, 1), there = within.Prepare(kRows, 1);
    beside.Start(here.get(), true);
    within.Start(there.get(), true);
    EXPECT_TRUE(i == 1 || within.stepper().Done());
    while (told < i) std::this_thread::yield();
    EXPECT_TRUE(beside.stepper().Done()) << "whoever is told finds it done";
    const StepResult result = beside.Finish(here.get()), expected = within.Finish(there.get());
    EXPECT_EQ(result.gradients, expected.gradients);
    EXPECT_EQ(result.quality.loss_sum, expected.quality.loss_sum);
  }
}

// Once a model is certain of its samples, computing with subnormals would take most of the processor's time.
TEST(StepperSubnormalTest, NoGradientIsSubnormal) {
  StepCase step({ModelKind::kLogisticRegression, 3, 0, 2}, {}, 1);
  ASSERT_TRUE(step.MakeStepper().has_value());
  for (std::uint64_t seed = 0; seed < 400; ++seed)  // logits of which many are between -87 and -103
    for (const auto& gradients : step.Run(1, seed, true, 60).gradients)
      for (const float g : gradients) ASSERT_NE(std::fpclassify(g), FP_SUBNORMAL) << g << " of seed " << seed;
}

TEST(StepperPartsTest, EvaluationOnAGpuKeepsToThePartsOfTraining) {
  const TrainSection whole{.batch_rows = 64}, parts{.batch_rows = 65, .accumulate = 4};
  EXPECT_EQ(PartRows(whole, /*on_gpu=*/true, 2'048), 64u);
  EXPECT_EQ(PartRows(whole, /*on_gpu=*/false, 2'048), 2'048u) << "a CPU has the memory, and likes them large";
  for (const bool on_gpu : {true, false}) EXPECT_EQ(PartRows(parts, on_gpu, 2'048), 17u);
}

// The advice names only keys of the job file that are not set already.
TEST(StepperPartsTest, TheAdviceForTooLittleMemoryNamesOnlyUsableKeys) {
  EXPECT_EQ(AdviceFor({.batch_rows = 1'000}, 300),
            "about 300 rows would fit: train.accumulate = 4, or train.recompute = true");
  EXPECT_EQ(AdviceFor({.batch_rows = 1'000, .accumulate = 6, .recompute = true}, 300),
            "about 300 rows would fit: train.accumulate = 7");
  EXPECT_EQ(AdviceFor({.batch_rows = 2, .recompute = true}, 1), "about 1 rows would fit: train.accumulate = 2");
  const std::string none = "not even one row fits: a smaller model or another GPU is needed";
  EXPECT_EQ(AdviceFor({.batch_rows = 1'000, .recompute = true}, 0), none);
  EXPECT_EQ(AdviceFor({.batch_rows = 1, .recompute = true}, 1), none);
  EXPECT_EQ(AdviceFor({.batch_rows = 4, .accumulate = 4}, 1), none + ", or train.recompute = true");
}

TEST(StepperDeviceTest, WorkersOfAMachineShareItsGpusRoundRobin) {
  const TrainSection any{.device = "gpu"}, third{.device = "gpu:3"};
  for (std::uint32_t rank = 0; rank < 20; ++rank) {
    EXPECT_EQ(GpuFor(any, rank, 8), int(rank % 8));
    EXPECT_EQ(GpuFor(any, rank, 1), 0);
    EXPECT_EQ(GpuFor(any, rank, 0), 0) << "which is not there: that is the error";
    EXPECT_EQ(GpuFor(third, rank, 8), 3);
    EXPECT_EQ(GpuFor({}, rank, 8), std::nullopt);
  }
}

TEST(StepperDeviceTest, TheErrorOfAMissingGpuSaysWhatToDo) {
  StepCase step({ModelKind::kFm, 3, 0, 2}, {.device = "gpu:999"}, kRows);
  const Status made = step.MakeStepper();
  ASSERT_FALSE(made.has_value());
  const std::string& message = made.error().message;
  EXPECT_NE(message.find("train.device = \"gpu:999\": "), std::string::npos) << message;
  EXPECT_NE(message.find("train.device = \"cpu\""), std::string::npos) << message;
}

TEST(LossScaleTest, HalvesAtOnceAndDoublesAfterManyBatches) {
  LossScale scale(Precision::kFp16);
  EXPECT_EQ(scale.value(), 65'536.0f);
  EXPECT_FALSE(scale.Settle(false, scale.value()));
  EXPECT_EQ(scale.value(), 32'768.0f);
  for (std::uint32_t i = 0; i < LossScale::kGrowsAfter - 1; ++i) EXPECT_TRUE(scale.Settle(true, scale.value()));
  EXPECT_EQ(scale.value(), 32'768.0f);
  EXPECT_TRUE(scale.Settle(true, scale.value()));
  EXPECT_EQ(scale.value(), 65'536.0f);
}

// A loss that no scale can make finite reaches the servers, as in fp32.
TEST(LossScaleTest, StaysWithinItsBounds) {
  LossScale small(Precision::kFp16);
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(small.Settle(false, small.value()));
  EXPECT_EQ(small.value(), 1.0f);
  EXPECT_TRUE(small.Settle(false, small.value()));
  EXPECT_EQ(small.value(), 1.0f);
  LossScale large(Precision::kFp16);
  for (std::uint32_t i = 0; i < 20 * LossScale::kGrowsAfter; ++i) EXPECT_TRUE(large.Settle(true, large.value()));
  EXPECT_EQ(large.value(), LossScale::kMax);
}

// Two steps at a time: the second began before the first was found to overflow.
TEST(LossScaleTest, ABatchThatBeganBeforeAChangeDoesNotChangeItAgain) {
  LossScale scale(Precision::kFp16);
  const float before = scale.value();
  EXPECT_FALSE(scale.Settle(false, before));
  EXPECT_FALSE(scale.Settle(false, before));
  EXPECT_EQ(scale.value(), before / 2);
  for (std::uint32_t i = 0; i < LossScale::kGrowsAfter; ++i) EXPECT_TRUE(scale.Settle(true, before));
  EXPECT_EQ(scale.value(), before / 2);
  while (scale.value() != 1.0f) EXPECT_FALSE(scale.Settle(false, scale.value()));
  EXPECT_FALSE(scale.Settle(false, 2.0f));
  EXPECT_TRUE(scale.Settle(false, 1.0f));
}

TEST(LossScaleTest, OtherPrecisionsHaveNoLossScale) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    LossScale scale(precision);
    EXPECT_TRUE(scale.Settle(false, scale.value()));
    EXPECT_EQ(scale.value(), 1.0f);
  }
}

}  // namespace
}  // namespace tarn::worker

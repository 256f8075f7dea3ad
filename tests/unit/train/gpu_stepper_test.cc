// Shows that a step of every model gives on a GPU what it gives on the CPU: predictions and gradients, in every
// precision, in parts, recomputed and clipped, batch after batch of other sizes. Skipped, with the reason, where there
// is no GPU.
#include <cmath>

#include "tests/unit/train/step_cases.h"

namespace tarn::worker {
namespace {

class GpuStepperTest : public ::testing::TestWithParam<StepShape> {
 protected:
  static TrainSection OnGpu(TrainSection train) {
    train.device = "gpu";
    return train;
  }
};

// Gradients are compared by their distance over all tables, relative to their norm.
void ExpectNear(const StepResult& actual, const StepResult& expected, double tolerance) {
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  double distance = 0, norm = 0;
  for (std::size_t t = 0; t < expected.gradients.size(); ++t) {
    ASSERT_EQ(actual.gradients[t].size(), expected.gradients[t].size());
    for (std::size_t i = 0; i < expected.gradients[t].size(); ++i) {
      distance += std::pow(double(actual.gradients[t][i]) - double(expected.gradients[t][i]), 2);
      norm += std::pow(double(expected.gradients[t][i]), 2);
    }
  }
  EXPECT_LE(std::sqrt(distance), tolerance * std::sqrt(norm));
  EXPECT_EQ(actual.quality.rows, expected.quality.rows);
  EXPECT_EQ(actual.quality.positives, expected.quality.positives);
  EXPECT_NEAR(actual.quality.loss_sum, expected.quality.loss_sum, tolerance * expected.quality.loss_sum);
}

TEST_P(GpuStepperTest, AgreesWithTheCpu) {
  struct Variant {
    TrainSection train;
    double tolerance;
  };
  // Of one row a ReLU that rounding turns over is a good part.
  const Variant variants[] = {{{}, 1e-5},
                              {{.clip_global_norm = 0.01}, 1e-5},
                              {{.accumulate = 3}, 1e-5},
                              {{.recompute = true}, 1e-5},
                              {{.precision = Precision::kTf32}, 2e-2},
                              {{.precision = Precision::kBf16}, 5e-2},
                              {{.precision = Precision::kFp16}, 2e-2},
                              {{.precision = Precision::kFp16, .accumulate = 2, .recompute = true}, 2e-2}};
  for (const auto& [train, tolerance] : variants) {
    SCOPED_TRACE(std::string(Name(train.precision)));
    TrainSection reference = train;
    reference.precision = Precision::kFp32;
    StepCase cpu(GetParam(), reference, 300), gpu(GetParam(), OnGpu(train), 300);
    ASSERT_TRUE(cpu.MakeStepper().has_value());
    if (Status made = gpu.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
    for (const std::size_t rows :
         {std::size_t{0}, std::size_t{300}, std::size_t{1}, std::size_t{257}, std::size_t{700}}) {
      ExpectNear(gpu.Run(rows, rows), cpu.Run(rows, rows), tolerance);
      const StepResult evaluated = gpu.Run(rows, rows, /*train=*/false);
      EXPECT_TRUE(evaluated.gradients.empty());
      ExpectNear(evaluated, cpu.Run(rows, rows, /*train=*/false), tolerance);
    }
  }
}

// Written there on another stream, which the step is behind.
TEST_P(GpuStepperTest, RowsMayLieOnTheGpu) {
  StepCase pulled(GetParam(), OnGpu({}), 300), placed(GetParam(), OnGpu({}), 300);
  if (Status made = pulled.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  ASSERT_TRUE(placed.MakeStepper().has_value());
  auto stream = kernels::Stream::Make();
  ASSERT_TRUE(stream.has_value());
  std::vector<kernels::DeviceBuffer> arrays;
  placed.PlaceRows([&](const Buffer& rows) {
    auto array = kernels::DeviceBuffer::Allocate(**stream, rows.size() + 1, "a test's rows");
    EXPECT_TRUE(array.has_value());
    kernels::CopyToDevice(**stream, rows.data(), rows.size(), array->data());
    placed.stream()->WaitFor(**stream);
    return arrays.emplace_back(std::move(*array)).as<float>();
  });
  for (const std::size_t rows : {300u, 1u, 700u})
    for (const bool train : {true, false})
      ExpectNear(placed.Run(rows, rows, train), pulled.Run(rows, rows, train), 1e-5);
}

TEST_P(GpuStepperTest, EvaluationTakesNoMoreMemoryThanTraining) {
  constexpr std::size_t kBatchRows = 64, kManyRows = 2'048;
  StepCase gpu(GetParam(), OnGpu({}), kBatchRows);
  if (Status made = gpu.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  const std::size_t trained = gpu.Run(kBatchRows, 1).activation_bytes;
  EXPECT_LE(gpu.Run(kManyRows, 2, /*train=*/false).activation_bytes, trained);
}

// Gradients of parameters so large that they overflow: the batch is passed over, its losses with it, the next one is
// not.
TEST(GpuLossScaleTest, ABatchThatDoesNotFitFp16IsPassedOver) {
  StepCase gpu({ModelKind::kDlrm, 3, 4, 2}, {.precision = Precision::kFp16, .device = "gpu"}, 1);
  if (Status made = gpu.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  EXPECT_FALSE(gpu.Run(300, 1, true, 0.1).gradients.empty());
  const StepResult passed_over = gpu.Run(300, 1, true, 20);
  EXPECT_TRUE(passed_over.gradients.empty());
  EXPECT_EQ(passed_over.quality.rows, 0u);
  EXPECT_FALSE(gpu.Run(300, 1, true, 0.1).gradients.empty());
}

TEST(GpuWorkspaceTest, WhatDoesNotFitIsNamedAndCounted) {
  auto stream = kernels::Stream::Make();
  if (!stream) GTEST_SKIP() << stream.error().message;
  Workspace memory(stream->get());
  EXPECT_NE(memory.Get<std::byte>(1000), nullptr);
  EXPECT_EQ(memory.Get<std::byte>(std::size_t{1} << 50), nullptr);
  EXPECT_EQ(memory.Get<std::byte>(1000), nullptr);
  EXPECT_TRUE(memory.failed());
  EXPECT_NE(memory.failure().find("1125899906842624 bytes asked for"), std::string::npos) << memory.failure();
  EXPECT_EQ(memory.peak_bytes(), (std::size_t{1} << 50) + 2 * 1024);
  memory.Reset();
  EXPECT_NE(memory.Get<std::byte>(1000), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, GpuStepperTest, ::testing::ValuesIn(kStepShapes),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace tarn::worker

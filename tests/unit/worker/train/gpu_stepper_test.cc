// Shows that a step of every model has the same predictions and gradients on a GPU as on the CPU: in every precision,
// in parts, recomputed and clipped, for batches of different sizes; and that recorded steps have the bits of unrecorded
// ones. Skipped, with the reason, if there is no GPU.
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "tests/unit/kernels/pinned_copies.h"
#include "tests/unit/worker/train/step_cases.h"

namespace tarn::worker {
namespace {

// Under AddressSanitizer each array of activations is allocated separately (worker/models/workspace.cc), at another
// address in every step, so no recorded step can be reused.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kStepsComeAgain = false;
#else
constexpr bool kStepsComeAgain = true;
#endif
constexpr const char* kNoneComesAgain = "no step comes again under AddressSanitizer";

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
  // In a batch of one row, a ReLU whose sign changes by rounding is a large part of the gradient.
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

// Another stream writes the rows, and the step waits for it.
TEST_P(GpuStepperTest, RowsMayBeOnTheGpu) {
  StepCase pulled(GetParam(), OnGpu({}), 300), placed(GetParam(), OnGpu({}), 300);
  if (Status made = pulled.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  ASSERT_TRUE(placed.MakeStepper().has_value());
  auto stream = kernels::Stream::Make();
  ASSERT_TRUE(stream.has_value());
  kernels::PinnedCopies copies(stream->get());
  std::vector<kernels::DeviceBuffer> arrays;
  placed.PlaceRows([&](const Buffer& rows) {
    auto array = kernels::DeviceBuffer::Allocate(**stream, rows.size() + 1, "a test's rows");
    EXPECT_TRUE(array.has_value());
    copies.ToDevice(rows.data(), rows.size(), array->data());
    return arrays.emplace_back(std::move(*array)).as<float>();
  });
  for (const std::size_t rows : {300u, 1u, 700u})
    for (const bool train : {true, false})
      ExpectNear(placed.Run(rows, rows, train), pulled.Run(rows, rows, train), 1e-5);
}

TEST_P(GpuStepperTest, EvaluationNeedsNoMoreMemoryThanTraining) {
  constexpr std::size_t kBatchRows = 64, kManyRows = 2'048;
  StepCase gpu(GetParam(), OnGpu({}), kBatchRows);
  if (Status made = gpu.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  const std::size_t trained = gpu.Run(kBatchRows, 1).activation_bytes;
  EXPECT_LE(gpu.Run(kManyRows, 2, /*train=*/false).activation_bytes, trained);
}

void ExpectSameBits(const StepResult& actual, const StepResult& expected) {
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (std::size_t t = 0; t < expected.gradients.size(); ++t) {
    const auto &a = actual.gradients[t], &b = expected.gradients[t];
    ASSERT_EQ(a.size(), b.size());
    ASSERT_TRUE(a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) << "table " << t;
  }
  EXPECT_EQ(actual.quality.rows, expected.quality.rows);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(actual.quality.loss_sum),  // the bits, because the loss may be NaN
            std::bit_cast<std::uint64_t>(expected.quality.loss_sum));
  EXPECT_EQ(actual.activation_bytes, expected.activation_bytes);
}

// Batches of different keys and parameters: repeated, larger and smaller sizes, below and above a power of two, with
// evaluation in between. The smallest need fewer rows of the tables.
constexpr struct {
  std::size_t rows;
  bool train;
} kSteps[] = {{300, true}, {300, true}, {300, true},  {300, true}, {300, false}, {300, false}, {300, false},
              {2, true},   {2, true},   {2, true},    {2, true},   {300, true},  {700, false}, {700, false},
              {300, true}, {300, true}, {300, false}, {700, true}, {700, true},  {300, true},  {2, true},
              {300, true}, {700, true}, {700, true},  {1, true},   {300, true},  {300, false}, {300, true},
              {20, true},  {20, true},  {20, true},   {20, true},  {20, true},   {20, true},   {20, true}};

TEST_P(GpuStepperTest, RecordedStepsHaveTheSameBits) {
  if (!kStepsComeAgain) GTEST_SKIP() << kNoneComesAgain;
  const TrainSection variants[] = {{},
                                   {.clip_global_norm = 0.01, .accumulate = 3},
                                   {.recompute = true},
                                   {.precision = Precision::kBf16},
                                   {.precision = Precision::kFp16, .accumulate = 2, .recompute = true}};
  for (const TrainSection& train : variants) {
    SCOPED_TRACE(std::string(Name(train.precision)));
    StepCase recorded(GetParam(), OnGpu(train), 300), plain(GetParam(), OnGpu(train), 300);
    if (Status made = recorded.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
    ASSERT_TRUE(plain.MakeStepper().has_value());
    plain.stepper().UseGraphs(false);
    std::uint64_t seed = 1;
    for (const auto& [rows, training] : kSteps) {
      SCOPED_TRACE(seed);
      // Rows of varying length are mostly the same ones; otherwise no step would be repeated.
      const std::uint64_t batch = GetParam().fields == 0 && seed % 5 != 0 ? rows : seed;
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(recorded.Run(rows, batch, training), plain.Run(rows, batch, training)));
      ++seed;
    }
    EXPECT_GE(recorded.stepper().graphs_launched(), 6u);
    EXPECT_EQ(plain.stepper().graphs_launched(), 0u);
  }
}

// The next step is copied to the GPU while one is computed.
TEST_P(GpuStepperTest, TwoStepsAtATimeHaveTheBitsOfOneAfterTheOther) {
  const TrainSection variants[] = {
      {}, {.clip_global_norm = 0.01, .accumulate = 3}, {.precision = Precision::kFp16, .recompute = true}};
  for (const TrainSection& train : variants) {
    SCOPED_TRACE(std::string(Name(train.precision)));
    StepCase two(GetParam(), OnGpu(train), 300), one(GetParam(), OnGpu(train), 300);
    if (Status made = two.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
    ASSERT_TRUE(one.MakeStepper().has_value());
    one.stepper().UseGraphs(false);
    std::deque<std::unique_ptr<StepCase::Prepared>> started;
    std::deque<StepResult> expected;
    const auto finish = [&] {
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(two.Finish(started.front().get()), expected.front()));
      started.pop_front();
      expected.pop_front();
    };
    std::uint64_t seed = 1;
    for (const auto& [rows, training] : kSteps) {
      SCOPED_TRACE(seed);
      if (started.size() == Stepper::kStepsOnGpu) finish();
      expected.push_back(one.Run(rows, seed % 3, training));
      started.push_back(two.Prepare(rows, seed % 3));
      two.Start(started.back().get(), training);
      ++seed;
    }
    while (!started.empty()) finish();
    EXPECT_GE(two.stepper().graphs_launched(), kStepsComeAgain ? 4u : 0u);
  }
}

TEST(GpuStepperOrderTest, ReportsItsEndOnceItIsDone) {
  std::atomic<int> told = 0;
  StepCase step({ModelKind::kDlrm, 3, 4, 2}, {.device = "gpu"}, 300);
  const auto tell = [&] {
    ++told;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // whoever is told finds it done meanwhile
  };
  if (Status made = step.MakeStepper({.done = tell}); !made) GTEST_SKIP() << made.error().message;
  EXPECT_FALSE(step.stepper().Done()) << "nothing was started";
  for (int i = 1; i <= 3; ++i) {
    const auto prepared = step.Prepare(300, 1);
    step.Start(prepared.get(), true);
    while (told < i) std::this_thread::yield();
    EXPECT_TRUE(step.stepper().Done());
    EXPECT_FALSE(step.Finish(prepared.get()).gradients.empty());
  }
}

// The indexes are at another address each time, like the plans of batches in flight. Recorded steps are reused anyway.
TEST_P(GpuStepperTest, IndexesMayBeOnTheGpu) {
  StepCase here(GetParam(), OnGpu({}), 300), there(GetParam(), OnGpu({}), 300);
  if (Status made = here.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  ASSERT_TRUE(there.MakeStepper().has_value());
  auto stream = kernels::Stream::Make();
  ASSERT_TRUE(stream.has_value());
  kernels::PinnedCopies copies(stream->get());
  std::vector<kernels::DeviceBuffer> arrays;
  there.PlaceIndexes([&](const std::vector<std::uint32_t>& index) {
    const std::size_t bytes = index.size() * sizeof(std::uint32_t);
    auto array = kernels::DeviceBuffer::Allocate(**stream, bytes, "a test's index");
    EXPECT_TRUE(array.has_value());
    copies.ToDevice(index.data(), bytes, array->data());
    return arrays.emplace_back(std::move(*array)).as<std::uint32_t>();
  });
  for (const auto& [rows, train] : kSteps)
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(there.Run(rows, rows, train), here.Run(rows, rows, train)));
  EXPECT_GE(there.stepper().graphs_launched(), kStepsComeAgain ? 6u : 0u);
  EXPECT_EQ(there.stepper().graphs_launched(), here.stepper().graphs_launched());
}

// The scale of the loss is part of the recorded step: after gradients that overflowed, it is another step.
TEST(GpuStepGraphsTest, AChangedLossScaleIsAnotherStep) {
  if (!kStepsComeAgain) GTEST_SKIP() << kNoneComesAgain;
  const StepShape shape{ModelKind::kDlrm, 3, 4, 2};
  const TrainSection train{.precision = Precision::kFp16, .device = "gpu"};
  StepCase recorded(shape, train, 1), plain(shape, train, 1);
  if (Status made = recorded.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  ASSERT_TRUE(plain.MakeStepper().has_value());
  plain.stepper().UseGraphs(false);
  for (const double reach : {0.1, 0.1, 0.1, 0.1, 20.0, 0.1, 0.1, 0.1}) {
    const StepResult expected = plain.Run(300, 1, true, reach);
    EXPECT_EQ(expected.gradients.empty(), reach == 20.0);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(recorded.Run(300, 1, true, reach), expected));
  }
  EXPECT_GE(recorded.stepper().graphs_launched(), 3u);
}

// A larger batch needs more memory for activations, while the model's inputs stay at their addresses.
TEST(GpuStepGraphsTest, StepsAreRecordedAgainAfterMemoryHasMoved) {
  if (!kStepsComeAgain) GTEST_SKIP() << kNoneComesAgain;
  const StepShape shape{ModelKind::kMlp, 0, 6, 4};
  constexpr std::size_t kRows = 10'000, kMoreRows = 12'000;
  StepCase recorded(shape, {.device = "gpu"}, kMoreRows), plain(shape, {.device = "gpu"}, kMoreRows);
  if (Status made = recorded.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  ASSERT_TRUE(plain.MakeStepper().has_value());
  plain.stepper().UseGraphs(false);
  const auto launched = [&](std::size_t rows, std::uint64_t seed) {
    const std::uint64_t before = recorded.stepper().graphs_launched();
    ExpectSameBits(recorded.Run(rows, seed), plain.Run(rows, seed));
    return recorded.stepper().graphs_launched() != before;
  };
  for (const std::uint64_t seed : {1, 2, 3, 4}) launched(kRows, seed);
  EXPECT_TRUE(launched(kRows, 5));
  EXPECT_FALSE(launched(kMoreRows, 6));
  EXPECT_FALSE(launched(kRows, 7)) << "its memory is another";
  EXPECT_TRUE(launched(kRows, 8));
}

// More kinds of steps than can be stored: each three times in a row, then all in turn.
TEST(GpuStepGraphsTest, MoreSizesThanAreStored) {
  if (!kStepsComeAgain) GTEST_SKIP() << kNoneComesAgain;
  const StepShape shape{ModelKind::kDlrm, 3, 4, 2};
  StepCase recorded(shape, {.device = "gpu"}, 300), plain(shape, {.device = "gpu"}, 300);
  if (Status made = recorded.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  ASSERT_TRUE(plain.MakeStepper().has_value());
  plain.stepper().UseGraphs(false);
  const auto compare = [&](std::size_t rows, std::uint64_t seed) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(recorded.Run(rows, seed), plain.Run(rows, seed)));
  };
  compare(300, 1);
  compare(300, 2);  // allocates the memory for all later steps
  for (std::size_t rows = 200; rows < 200 + 2 * StepGraphs::kGraphsMax; ++rows)
    for (const std::uint64_t seed : {1, 2, 3}) compare(rows, seed);
  const std::uint64_t launched = recorded.stepper().graphs_launched();
  EXPECT_EQ(launched, 2 * 2 * StepGraphs::kGraphsMax);
  for (std::size_t rows = 200; rows < 200 + 2 * StepGraphs::kGraphsMax; ++rows) compare(rows, 4);
  EXPECT_EQ(recorded.stepper().graphs_launched(), launched) << "those used last had gone";
}

// Parameters so large that their gradients overflow: the batch and its losses are skipped, and the next batch is not.
TEST(GpuLossScaleTest, ABatchThatOverflowsFp16IsSkipped) {
  StepCase gpu({ModelKind::kDlrm, 3, 4, 2}, {.precision = Precision::kFp16, .device = "gpu"}, 1);
  if (Status made = gpu.MakeStepper(); !made) GTEST_SKIP() << made.error().message;
  EXPECT_FALSE(gpu.Run(300, 1, true, 0.1).gradients.empty());
  const StepResult passed_over = gpu.Run(300, 1, true, 20);
  EXPECT_TRUE(passed_over.gradients.empty());
  EXPECT_EQ(passed_over.quality.rows, 0u);
  EXPECT_FALSE(gpu.Run(300, 1, true, 0.1).gradients.empty());
}

TEST(GpuWorkspaceTest, AnAllocationThatFailsIsNamedAndCounted) {
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

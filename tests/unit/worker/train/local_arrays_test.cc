// Shows that local steps follow a float64 reference, that one step of `accumulate` has the bits of a step without local
// steps, and what `delta` and `elastic` push.
#include "worker/train/local_arrays.h"

#include <cmath>

#include "tests/unit/worker/train/step_cases.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kBatch = 50;
constexpr float kRate = 0.3f;

LocalSection LocalOf(LocalMethod method, std::uint32_t steps, const char* kind = "sgd") {
  return {.method = method, .steps = steps, .optimizer = {.kind = kind, .learning_rate = kRate}};
}

std::unique_ptr<StepCase> CaseOf(const StepShape& shape, const LocalSection& local) {
  auto made = std::make_unique<StepCase>(shape, TrainSection(), kBatch);
  made->SetLocal(local);
  EXPECT_TRUE(made->MakeStepper().has_value());
  return made;
}

class LocalArraysTest : public ::testing::TestWithParam<StepShape> {};

TEST_P(LocalArraysTest, OneAccumulatedStepIsAStepWithoutLocalSteps) {
  const StepResult plain = CaseOf(GetParam(), {})->Run(kBatch, 3);
  const StepResult local = CaseOf(GetParam(), LocalOf(LocalMethod::kAccumulate, 1))->Run(kBatch, 3);
  EXPECT_EQ(local.gradients, plain.gradients);
  EXPECT_EQ(local.quality.loss_sum, plain.quality.loss_sum);
}

TEST_P(LocalArraysTest, TheDeltaOfOneStepIsItsGradientTimesTheRate) {
  const StepResult plain = CaseOf(GetParam(), {})->Run(kBatch, 3);
  const StepResult local = CaseOf(GetParam(), LocalOf(LocalMethod::kDelta, 1))->Run(kBatch, 3);
  ASSERT_EQ(local.gradients.size(), plain.gradients.size());
  for (std::size_t t = 0; t < plain.gradients.size(); ++t)
    for (std::size_t i = 0; i < plain.gradients[t].size(); ++i)
      ASSERT_NEAR(local.gradients[t][i], kRate * plain.gradients[t][i], 1e-6);
}

TEST_P(LocalArraysTest, EvaluationTakesNoSteps) {
  const StepResult plain = CaseOf(GetParam(), {})->Run(3 * kBatch, 3, false);
  const StepResult local = CaseOf(GetParam(), LocalOf(LocalMethod::kDelta, 3))->Run(3 * kBatch, 3, false);
  EXPECT_TRUE(local.gradients.empty());
  EXPECT_EQ(local.quality.loss_sum, plain.quality.loss_sum);
}

INSTANTIATE_TEST_SUITE_P(All, LocalArraysTest, ::testing::ValuesIn(kStepShapes),
                         [](const auto& test) { return NameOf(test.param); });

constexpr StepShape kLogistic{ModelKind::kLogisticRegression, 3, 0, 2};

// Steps of logistic regression in double: the rows after them, and the sum of the gradients.
struct Reference {
  std::vector<double> rows, sum;
};
Reference StepsOf(const StepCase::Prepared& step, const std::vector<double>& rows, const std::vector<double>& pulled,
                  double prox, double momentum) {
  const Plan& plan = step.plans[0];
  Reference out{rows, std::vector<double>(rows.size())};
  std::vector<double> m(rows.size());
  for (std::size_t begin = 0; begin < step.batch.rows; begin += kBatch) {
    std::vector<double> gradient(rows.size());
    std::vector<bool> touched(rows.size());
    const std::size_t bias = plan.index.back();
    for (std::size_t r = begin; r < std::min(begin + kBatch, step.batch.rows); ++r) {
      double logit = out.rows[bias];
      for (std::size_t o = 3 * r; o < 3 * r + 3; ++o) logit += out.rows[plan.index[o]];
      const double g = (1 / (1 + std::exp(-logit)) - double(step.batch.labels[r])) / kBatch;
      gradient[bias] += g;
      touched[bias] = true;
      for (std::size_t o = 3 * r; o < 3 * r + 3; ++o) {
        gradient[plan.index[o]] += g;
        touched[plan.index[o]] = true;
      }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!touched[i]) continue;
      out.sum[i] += gradient[i];
      m[i] = momentum * m[i] + gradient[i] + prox * (out.rows[i] - pulled[i]);
      out.rows[i] -= double(kRate) * m[i];
    }
  }
  return out;
}

std::vector<double> ValuesOf(const StepCase::Prepared& step) {
  const auto values = step.values[0].as<float>();
  return {values.begin(), values.end()};
}

TEST(LocalStepsTest, FollowTheReference) {
  for (const LocalMethod method : {LocalMethod::kAccumulate, LocalMethod::kDelta})
    for (const float prox : {0.0f, 0.5f})
      for (const char* kind : {"sgd", "momentum"}) {
        LocalSection local = LocalOf(method, 4, kind);
        local.prox = prox;
        const auto made = CaseOf(kLogistic, local);
        // The last part is a short one.
        const auto step = made->Prepare(3 * kBatch + 7, 5);
        made->Start(step.get(), true);
        const StepResult result = made->Finish(step.get());
        const std::vector<double> pulled = ValuesOf(*step);
        const Reference expected =
            StepsOf(*step, pulled, pulled, double(prox), kind == std::string("momentum") ? double(0.9f) : 0);
        for (std::size_t i = 0; i < pulled.size(); ++i) {
          const double push = method == LocalMethod::kDelta ? pulled[i] - expected.rows[i] : expected.sum[i];
          ASSERT_NEAR(result.gradients[0][i], push, 2e-6) << Name(method) << " " << kind << " " << prox << " " << i;
        }
      }
}

// The local rows move towards the servers' rows by as much as the push moves the servers' rows towards the local ones.
TEST(LocalStepsTest, ElasticMovesLocalAndServerRowsTowardsEachOther) {
  LocalSection local = LocalOf(LocalMethod::kElastic, 2);
  local.moving_rate = 0.25f;
  const auto made = CaseOf(kLogistic, local);
  const auto first = made->Prepare(2 * kBatch, 5);
  made->Start(first.get(), true);
  const StepResult pushed = made->Finish(first.get());
  const std::vector<double> pulled = ValuesOf(*first);
  Reference expected = StepsOf(*first, pulled, pulled, 0, 0);
  for (std::size_t i = 0; i < pulled.size(); ++i) {
    const double d = 0.25 * (pulled[i] - expected.rows[i]);
    ASSERT_NEAR(pushed.gradients[0][i], d, 2e-6);
    expected.rows[i] += d;
  }
  // The next batch begins with these local rows, whatever it pulls; here it pulls the same rows as before.
  const auto second = made->Prepare(2 * kBatch, 5);
  made->Start(second.get(), true);
  const StepResult again = made->Finish(second.get());
  const Reference after = StepsOf(*second, expected.rows, pulled, 0, 0);
  for (std::size_t i = 0; i < pulled.size(); ++i)
    ASSERT_NEAR(again.gradients[0][i], 0.25 * (pulled[i] - after.rows[i]), 4e-6);
}

TEST(LocalStepsTest, ElasticWithoutAMovingRatePushesNothing) {
  LocalSection local = LocalOf(LocalMethod::kElastic, 2);
  local.moving_rate = 0;
  const StepResult pushed = CaseOf(kLogistic, local)->Run(2 * kBatch, 5);
  for (const float g : pushed.gradients[0]) EXPECT_EQ(g, 0.0f);
}

}  // namespace
}  // namespace tarn::worker

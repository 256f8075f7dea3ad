// Shows that every optimizer, plain and with L2, clipping and schedules, follows a float64 reference over 1,000
// steps, and that the special cases of its contract hold.
#include "kernels/optimizer.h"

#include <algorithm>

#include "core/limits.h"
#include "tests/unit/kernels/kernel_test_util.h"
#include "tests/unit/kernels/optimizer_cases.h"

namespace tarn::kernels {
namespace {

// One row in float64, written from the papers' formulas, independently of the kernel.
class Reference {
 public:
  Reference(const OptimizerSpec& spec, const std::vector<float>& w)
      : spec_(spec), w_(w.begin(), w.end()), a_(w.size()), b_(w.size()) {
    const double start = double(OptionOf(spec, "initial_accumulator"));
    if (spec.kind == "adagrad") a_.assign(w.size(), start);
    if (spec.kind == "ftrl") b_.assign(w.size(), start);
    row_ = start;
  }

  void Step(double lr, const float* gradient) {
    std::vector<double> g(gradient, gradient + w_.size());
    Condition(g);
    ++steps_;
    if (spec_.kind == "row_wise_adagrad") {
      double squares = 0;
      for (const double v : g) squares += v * v;
      row_ += squares / double(g.size());
    }
    for (std::size_t j = 0; j < g.size(); ++j) Element(lr, g[j], w_[j], a_[j], b_[j]);
  }

  const std::vector<double>& values() const { return w_; }

 private:
  void Condition(std::vector<double>& g) const {
    for (std::size_t j = 0; j < g.size(); ++j) g[j] += double(spec_.l2) * w_[j];
    if (spec_.clip_value > 0)
      for (double& v : g) v = std::clamp(v, -double(spec_.clip_value), double(spec_.clip_value));
    double squares = 0;
    for (const double v : g) squares += v * v;
    if (spec_.clip_norm > 0 && std::sqrt(squares) > double(spec_.clip_norm))
      for (double& v : g) v *= double(spec_.clip_norm) / std::sqrt(squares);
  }

  double Option(std::string_view name) const { return double(OptionOf(spec_, name)); }

  void Element(double lr, double g, double& w, double& a, double& b) const {
    const double mu = Option("momentum"), rho = Option("rho"), eps = Option("epsilon");
    const RuleName& kind = spec_.kind;
    if (kind == "sgd") {
      w -= lr * g;
    } else if (kind == "momentum") {
      w -= lr * (a = mu * a + g);
    } else if (kind == "nesterov") {
      a = mu * a + g;
      w -= lr * (g + mu * a);
    } else if (kind == "adagrad") {
      a += g * g;
      w -= lr * g / (std::sqrt(a) + eps);
    } else if (kind == "row_wise_adagrad") {
      w -= lr * g / (std::sqrt(row_) + eps);
    } else if (kind == "rmsprop") {
      a = rho * a + (1 - rho) * g * g;
      w -= lr * g / (std::sqrt(a) + eps);
    } else if (kind == "ftrl") {
      const double sigma = (std::sqrt(b + g * g) - std::sqrt(b)) / lr;
      a += g - sigma * w;
      b += g * g;
      const double l1 = Option("ftrl_l1"), l2 = Option("ftrl_l2"), beta = Option("ftrl_beta");
      w = std::abs(a) <= l1 ? 0 : -(a - std::copysign(l1, a)) / ((beta + std::sqrt(b)) / lr + l2);
    } else {
      ASSERT_TRUE(kind == "adam" || kind == "adamw") << kind.value;
      if (kind == "adamw") w -= lr * Option("weight_decay") * w;
      const double b1 = Option("beta1"), b2 = Option("beta2");
      a = b1 * a + (1 - b1) * g;
      b = b2 * b + (1 - b2) * g * g;
      w -= lr * (a / (1 - std::pow(b1, steps_))) / (std::sqrt(b / (1 - std::pow(b2, steps_))) + eps);
    }
  }

  OptimizerSpec spec_;
  std::vector<double> w_, a_, b_;
  double row_ = 0;
  int steps_ = 0;
};

// One row of the table under test.
struct Row {
  std::vector<float> values, slots;
  Row(const OptimizerSpec& spec, std::vector<float> w)
      : values(std::move(w)), slots(Poisoned(SlotFloats(spec.kind, std::uint32_t(values.size())))) {
    InitSlots(spec, std::uint32_t(values.size()), slots.data());
  }
  void Step(const OptimizerSpec& spec, std::uint64_t clock, const std::vector<float>& gradient) {
    float* value_pointer = values.data();
    float* slot_pointer = slots.data();
    ApplyOptimizer(spec, Clock(clock), std::uint32_t(values.size()), 1, &value_pointer, &slot_pointer, gradient.data());
  }
};

TEST(OptimizerTest, FollowsTheReferenceOverManySteps) {
  for (const OptimizerCase& c : OptimizerCases())
    for (const std::size_t dim : {1, 3, 8, 16, 37}) {
      SCOPED_TRACE(c.name + ", dim " + std::to_string(dim));
      SplitMix random(dim);
      const std::vector<float> start = RandomFloats(dim, random, -0.5, 0.5);
      const std::vector<float> target = RandomFloats(dim, random, -0.5, 0.5);
      Row row(c.spec, start);
      Reference reference(c.spec, start);
      for (std::uint64_t clock = 0; clock < 1000; ++clock) {
        std::vector<float> gradient = RandomFloats(dim, random);
        for (std::size_t j = 0; j < dim; ++j) gradient[j] += row.values[j] - target[j];  // a noisy valley
        row.Step(c.spec, clock, gradient);
        reference.Step(double(LearningRate(c.spec, Clock(clock))), gradient.data());
      }
      ExpectNear(row.values, reference.values(), 3e-5);
    }
}

// With clipped gradients, which need memory of a row's width.
TEST(OptimizerTest, RowsOfTheLargestWidth) {
  constexpr std::uint32_t kDim = limits::kRowDimMax;
  SplitMix random(11);
  const std::vector<float> start = RandomFloats(kDim, random, -0.5, 0.5);
  for (const OptimizerCase& c : OptimizerCases()) {
    SCOPED_TRACE(c.name);
    Row row(c.spec, start);
    Reference reference(c.spec, start);
    for (std::uint64_t clock = 0; clock < 3; ++clock) {
      const std::vector<float> gradient = RandomFloats(kDim, random);
      row.Step(c.spec, clock, gradient);
      reference.Step(double(LearningRate(c.spec, Clock(clock))), gradient.data());
    }
    ExpectNear(row.values, reference.values(), 3e-5);
  }
  Row row({}, start);
  float* value_pointer = row.values.data();
  const std::vector<float> gradient(kDim + 1);
  EXPECT_DEATH(ApplyOptimizer({}, Clock(0), kDim + 1, 1, &value_pointer, nullptr, gradient.data()), "1..kRowDimMax");
}

TEST(OptimizerTest, DescendsAValley) {
  for (const OptimizerCase& c : OptimizerCases()) {
    OptimizerSpec spec = c.spec;
    for (const char* pull : {"ftrl_l1", "ftrl_l2", "weight_decay"}) spec.options.erase(pull);
    spec.l2 = 0;
    spec.schedule = {};
    spec.learning_rate = 0.05f;
    Row row(spec, {0.0f, 0.0f});
    const std::vector<float> target = {0.3f, -0.2f};
    for (std::uint64_t clock = 0; clock < 3000; ++clock)
      row.Step(spec, clock, {row.values[0] - target[0], row.values[1] - target[1]});
    for (std::size_t j = 0; j < 2; ++j) EXPECT_NEAR(row.values[j], target[j], 0.03) << c.name;
  }
}

TEST(OptimizerTest, InitialSlots) {
  for (const OptimizerCase& c : OptimizerCases())
    for (const std::uint32_t dim : {1u, 5u}) {
      std::vector<float> slots = Poisoned(SlotFloats(c.spec.kind, dim));
      InitSlots(c.spec, dim, slots.data());
      for (std::size_t j = 0; j < slots.size(); ++j) {
        const bool starts =
            c.spec.kind == "adagrad" || c.spec.kind == "row_wise_adagrad" || (c.spec.kind == "ftrl" && j >= dim);
        EXPECT_EQ(slots[j], starts ? 0.1f : 0.0f) << c.name << " " << j;
      }
    }
}

TEST(OptimizerTest, AdamCountsTheStepsOfEachRow) {
  for (const auto kind : {"adam", "adamw"}) {
    OptimizerSpec spec;
    spec.kind = kind;
    Row often(spec, {1.0f, 2.0f, 3.0f}), rare(spec, {1.0f, 2.0f, 3.0f}), alone(spec, {1.0f, 2.0f, 3.0f});
    const std::vector<float> g = {0.1f, -0.2f, 0.3f};
    std::vector<float> both = g;
    both.insert(both.end(), g.begin(), g.end());
    for (std::uint64_t clock = 0; clock < 90; ++clock) {
      if (clock % 10 != 9) {
        often.Step(spec, clock, g);
        continue;
      }
      float* values[] = {often.values.data(), rare.values.data()};
      float* slots[] = {often.slots.data(), rare.slots.data()};
      ApplyOptimizer(spec, Clock(clock), 3, 2, values, slots, both.data());
    }
    for (std::uint64_t step = 0; step < 9; ++step) alone.Step(spec, step, g);
    EXPECT_EQ(often.slots[6], 90.0f);
    EXPECT_EQ(rare.slots[6], 9.0f);
    EXPECT_TRUE(SameBits(rare.values, alone.values)) << "a row's steps do not depend on the others or the clock";
    EXPECT_TRUE(SameBits(rare.slots, alone.slots));
  }
}

TEST(OptimizerTest, AdamsStepCountSaturates) {
  OptimizerSpec spec;
  spec.kind = "adam";
  Row row(spec, {1.0f});
  row.slots[2] = float((1 << 24) - 1);
  for (std::uint64_t clock = 0; clock < 3; ++clock) {
    row.Step(spec, clock, {0.5f});
    EXPECT_EQ(row.slots[2], float(1 << 24));
    EXPECT_TRUE(std::isfinite(row.values[0]));
  }
}

TEST(OptimizerTest, ARowThatOccursTwiceTakesTwoSteps) {
  for (const OptimizerCase& c : OptimizerCases()) {
    SplitMix random(9);
    const std::vector<float> start = RandomFloats(8, random), g = RandomFloats(16, random);
    Row once(c.spec, start), twice(c.spec, start);
    once.Step(c.spec, 5, std::vector<float>(g.begin(), g.begin() + 8));
    once.Step(c.spec, 5, std::vector<float>(g.begin() + 8, g.end()));
    float* values[] = {twice.values.data(), twice.values.data()};
    float* slots[] = {twice.slots.data(), twice.slots.data()};
    ApplyOptimizer(c.spec, Clock(5), 8, 2, values, slots, g.data());
    EXPECT_TRUE(SameBits(once.values, twice.values)) << c.name;
    EXPECT_TRUE(SameBits(once.slots, twice.slots)) << c.name;
  }
}

TEST(OptimizerTest, SgdNeedsNoSlots) {
  std::vector<float> w = {1.0f, 2.0f};
  const std::vector<float> g = {10.0f, -10.0f};
  float* pointer = w.data();
  OptimizerSpec spec;
  InitSlots(spec, 2, nullptr);
  ApplyOptimizer(spec, Clock(0), 2, 1, &pointer, nullptr, g.data());
  EXPECT_FLOAT_EQ(w[0], 0.9f);
  EXPECT_FLOAT_EQ(w[1], 2.1f);
  ApplyOptimizer(spec, Clock(0), 2, 0, nullptr, nullptr, nullptr);
}

TEST(OptimizerTest, FtrlMakesZerosAndIgnoresARateOfZero) {
  OptimizerSpec spec;
  spec.kind = "ftrl";
  spec.options["ftrl_l1"] = 1.0f;
  Row row(spec, {0.0f, 0.0f});
  row.Step(spec, 0, {0.5f, -3.0f});
  EXPECT_EQ(row.values[0], 0.0f) << "|z| is below l1";
  EXPECT_GT(row.values[1], 0.0f);
  const Row before = row;
  spec.schedule = {ScheduleKind::kCosine, 0, 10, 0.0f};
  row.Step(spec, 10, {5.0f, 5.0f});
  EXPECT_TRUE(SameBits(row.values, before.values));
  EXPECT_TRUE(SameBits(row.slots, before.slots));
}

// The square of its first gradient is infinite.
TEST(OptimizerTest, AHugeGradientLeavesEveryRowFinite) {
  for (const UpdateRule* rule : UpdateRules()) {
    SCOPED_TRACE(rule->name);
    OptimizerSpec spec;
    spec.kind = rule->name;
    const Optimizer optimizer(spec);
    std::vector<float> values = {0.0f, 1.0f}, slots(optimizer.slot_floats(2)), state(rule->partition_floats);
    std::vector<float> pulled;
    if (!slots.empty()) optimizer.InitSlots(2, slots.data());
    float *row = values.data(), *slot = slots.data();
    for (const float g : {1e20f, 1e20f, 1e30f, -1.0f, 0.5f}) {
      const std::vector<float> gradients = {g, -g};
      pulled = values;
      pulled[0] -= 2.0f;  // another push has moved this value
      RuleContext context;
      context.rate = 0.01f;
      optimizer.Apply(context, {.dim = 2,
                                .n = 1,
                                .values = &row,
                                .slots = slots.empty() ? nullptr : &slot,
                                .gradients = gradients.data(),
                                .pulled = pulled.data(),
                                .partition_state = state,
                                .begins_section = true});
    }
    for (const std::vector<float>* each : {&values, &slots, &state})
      for (const float x : *each) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(OptimizerTest, ClippingCutsValuesThenTheNorm) {
  OptimizerSpec spec;
  spec.learning_rate = 1.0f;
  spec.clip_value = 4.0f;
  Row by_value(spec, {0.0f, 0.0f, 0.0f});
  by_value.Step(spec, 0, {10.0f, -10.0f, 1.0f});
  EXPECT_EQ(by_value.values, (std::vector<float>{-4.0f, 4.0f, -1.0f}));
  spec.clip_value = 0.0f;
  spec.clip_norm = 1.0f;
  Row by_norm(spec, {0.0f, 0.0f});
  by_norm.Step(spec, 0, {3.0f, 4.0f});
  EXPECT_FLOAT_EQ(by_norm.values[0], -0.6f);
  EXPECT_FLOAT_EQ(by_norm.values[1], -0.8f);
}

}  // namespace
}  // namespace tarn::kernels

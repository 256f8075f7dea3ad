// Shows that all update rules but those of optimizer_cases.h follow a float64 reference of their papers' formulas and
// have the same bits on every instruction set. Rules that correct for delay equal plain SGD if there is nothing to
// correct.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "kernels/subnormals.h"
#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr float kRate = 0.02f;

// The inputs of one step: the gradient, the row as it was pulled, and the delay.
struct Step {
  std::vector<float> gradient, pulled;
  std::uint64_t delay = 0;
  WorkerRank worker = {};
};

// One row of a rule, and the state of its partition.
class Row {
 public:
  Row(const OptimizerSpec& spec, std::vector<float> w) : spec_(spec), optimizer_(spec), values_(std::move(w)) {
    slots_.resize(optimizer_.slot_floats(dim()));
    optimizer_.InitSlots(dim(), slots_.data());
    state_.resize(optimizer_.rule().partition_floats);
  }
  void Take(const Step& step) {
    float* values = values_.data();
    float* slots = slots_.data();
    optimizer_.Apply(
        {.clock = Clock(0), .rate = LearningRate(spec_, Clock(0)), .delay = step.delay, .worker = step.worker},
        {.dim = dim(),
         .n = 1,
         .values = &values,
         .slots = &slots,
         .gradients = step.gradient.data(),
         .pulled = optimizer_.rule().needs_pulled ? step.pulled.data() : nullptr,
         .partition_state = state_,
         .begins_section = true});
  }
  std::uint32_t dim() const { return static_cast<std::uint32_t>(values_.size()); }
  const std::vector<float>& values() const { return values_; }
  const std::vector<float>& slots() const { return slots_; }
  const std::vector<float>& state() const { return state_; }

 private:
  OptimizerSpec spec_;
  Optimizer optimizer_;
  std::vector<float> values_, slots_, state_;
};

OptimizerSpec SpecOf(const char* kind) { return {.kind = kind, .learning_rate = kRate}; }

// 300 steps of a row that follows noise; each has the row as it was up to some steps before.
std::vector<Step> Steps(std::size_t dim, const std::function<const std::vector<float>&()>& now,
                        const std::function<void(const Step&)>& take) {
  SplitMix random(dim);
  std::vector<std::vector<float>> history = {now()};
  std::vector<Step> steps;
  for (int i = 0; i < 300; ++i) {
    Step step{RandomFloats(dim, random), {}, random.Below(std::min<std::uint64_t>(history.size(), 7))};
    step.pulled = history[history.size() - 1 - step.delay];
    for (std::size_t j = 0; j < dim; ++j) step.gradient[j] += step.pulled[j] - 0.2f;
    take(step);
    history.push_back(now());
    steps.push_back(step);
  }
  return steps;
}

// Written from the papers, independently of the kernels.
using Reference = std::function<void(const Step& step, std::vector<double>* w)>;

// `anew`: each step of the reference begins with the row's actual values, for a rule that amplifies rounding of earlier
// steps.
void ExpectFollows(const char* kind, const std::function<Reference(std::size_t dim)>& reference, bool anew = false) {
  for (const std::size_t dim : {1, 3, 8, 16, 37}) {
    SCOPED_TRACE(std::string(kind) + ", dim " + std::to_string(dim));
    SplitMix random(dim + 1);
    const std::vector<float> start = RandomFloats(dim, random, -0.5, 0.5);
    Row row(SpecOf(kind), start);
    std::vector<double> expected(start.begin(), start.end());
    const Reference step_of = reference(dim);
    Steps(
        dim, [&]() -> const std::vector<float>& { return row.values(); },
        [&](const Step& step) {
          if (anew) expected.assign(row.values().begin(), row.values().end());
          row.Take(step);
          step_of(step, &expected);
          if (anew) ExpectNear(row.values(), expected, 5e-6);
        });
    ExpectNear(row.values(), expected, 5e-5);
  }
}

TEST(AsyncRulesTest, Signum) {
  ExpectFollows("signum", [](std::size_t dim) -> Reference {
    return [m = std::vector<double>(dim)](const Step& step, std::vector<double>* w) mutable {
      for (std::size_t j = 0; j < m.size(); ++j) {
        m[j] = double(0.9f) * m[j] + (1 - double(0.9f)) * double(step.gradient[j]);
        (*w)[j] -= double(kRate) * double((m[j] > 0) - (m[j] < 0));
      }
    };
  });
}

TEST(AsyncRulesTest, SignumDoesNotMoveAtAGradientOfZero) {
  Row row(SpecOf("signum"), {1.0f, -1.0f});
  row.Take({{0.0f, -0.0f}, {}, 0});
  EXPECT_EQ(row.values(), (std::vector<float>{1.0f, -1.0f}));
}

TEST(AsyncRulesTest, StalenessAwareSgd) {
  ExpectFollows("staleness_aware_sgd", [](std::size_t) -> Reference {
    return [](const Step& step, std::vector<double>* w) {
      for (std::size_t j = 0; j < w->size(); ++j)
        (*w)[j] -= double(kRate) / double(std::max<std::uint64_t>(step.delay, 1)) * double(step.gradient[j]);
    };
  });
}

TEST(AsyncRulesTest, DelayAdaptiveSgd) {
  ExpectFollows("delay_adaptive_sgd", [](std::size_t) -> Reference {
    return [sum = 0.0, n = 0.0](const Step& step, std::vector<double>* w) mutable {
      sum += double(step.delay);
      n += 1;
      const double factor = step.delay == 0 ? 1.0 : std::min(1.0, sum / n / double(step.delay));
      for (std::size_t j = 0; j < w->size(); ++j) (*w)[j] -= double(kRate) * factor * double(step.gradient[j]);
    };
  });
}

// A section of many rows needs several calls of the optimizer.
TEST(AsyncRulesTest, DelayAdaptiveSgdCountsASectionOnce) {
  const Optimizer optimizer(SpecOf("delay_adaptive_sgd"));
  float value = 0;
  float* values = &value;
  const float gradient = 1;
  std::vector<float> state(2);
  for (const auto& [delay, begins] : {std::pair{4u, true}, {4u, false}, {4u, false}, {0u, true}})
    optimizer.Apply({.clock = Clock(0), .rate = kRate, .delay = delay}, {.dim = 1,
                                                                         .n = 1,
                                                                         .values = &values,
                                                                         .slots = nullptr,
                                                                         .gradients = &gradient,
                                                                         .partition_state = state,
                                                                         .begins_section = begins});
  EXPECT_EQ(state, (std::vector<float>{2, 2})) << "their mean, and two sections";
}

TEST(AsyncRulesTest, DcAsgd) {
  ExpectFollows("dc_asgd", [](std::size_t) -> Reference {
    return [](const Step& step, std::vector<double>* w) {
      for (std::size_t j = 0; j < w->size(); ++j) {
        const double g = double(step.gradient[j]);
        (*w)[j] -= double(kRate) * (g + double(0.04f) * g * g * ((*w)[j] - double(step.pulled[j])));
      }
    };
  });
}

TEST(AsyncRulesTest, DcAsgdAdaptive) {
  ExpectFollows("dc_asgd_adaptive", [](std::size_t dim) -> Reference {
    return [v = std::vector<double>(dim)](const Step& step, std::vector<double>* w) mutable {
      for (std::size_t j = 0; j < w->size(); ++j) {
        const double g = double(step.gradient[j]);
        v[j] = double(0.9f) * v[j] + (1 - double(0.9f)) * g * g;
        const double weight = 2.0 / std::sqrt(v[j] + double(1e-8f));
        (*w)[j] -= double(kRate) * (g + weight * g * g * ((*w)[j] - double(step.pulled[j])));
      }
    };
  });
}

TEST(AsyncRulesTest, GapAware) {
  ExpectFollows(
      "gap_aware",
      [](std::size_t dim) -> Reference {
        return [v = std::vector<double>(dim), m = std::vector<double>(dim), t = 0](const Step& step,
                                                                                   std::vector<double>* w) mutable {
          ++t;
          for (std::size_t j = 0; j < w->size(); ++j) {
            const double g = double(step.gradient[j]), rho = double(0.9f);
            v[j] = rho * v[j] + (1 - rho) * g * g;
            const double average_step = double(kRate) * (std::sqrt(v[j] / (1 - std::pow(rho, t))) + double(1e-8f));
            const double gap = 1 + std::abs((*w)[j] - double(step.pulled[j])) / average_step;
            m[j] = double(0.9f) * m[j] + g / gap;
            (*w)[j] -= double(kRate) * m[j];
          }
        };
      },
      true);
}

// Experiments compare rules with SGD, so without a correction they must not differ.
TEST(AsyncRulesTest, WithoutACorrectionTheyHaveTheBitsOfSgd) {
  OptimizerSpec no_weight = SpecOf("dc_asgd"), no_adaptive_weight = SpecOf("dc_asgd_adaptive");
  no_weight.options["dc_lambda"] = 0;
  no_adaptive_weight.options["dc_lambda0"] = 0;
  SplitMix random(5);
  const std::vector<float> start = RandomFloats(16, random);
  for (const OptimizerSpec& spec : {no_weight, no_adaptive_weight}) {
    Row row(spec, start), plain(SpecOf("sgd"), start);
    for (const Step& step :
         Steps(16, [&]() -> const std::vector<float>& { return row.values(); }, [&](const Step& s) { row.Take(s); }))
      plain.Take(step);
    EXPECT_TRUE(SameBits(row.values(), plain.values())) << spec.kind.value;
  }
  for (const char* kind : {"staleness_aware_sgd", "delay_adaptive_sgd"}) {
    Row row(SpecOf(kind), start), plain(SpecOf("sgd"), start);
    for (int i = 0; i < 20; ++i) {
      const Step step{RandomFloats(16, random), {}, 0};
      row.Take(step);
      plain.Take(step);
    }
    EXPECT_TRUE(SameBits(row.values(), plain.values())) << kind;
  }
}

// As on servers, where lr epsilon becomes zero.
TEST(AsyncRulesTest, GapAwareWithATinyRateStaysFinite) {
  const SubnormalsAreZero zero;
  OptimizerSpec spec = SpecOf("gap_aware");
  spec.learning_rate = 1e-32f;
  Row row(spec, {1.0f});
  row.Take({{0.0f}, {1.0f}, 0});
  EXPECT_EQ(row.values()[0], 1.0f);
}

TEST(AsyncRulesTest, ExponentialStalenessSgd) {
  ExpectFollows("exponential_staleness_sgd", [](std::size_t) -> Reference {
    return [](const Step& step, std::vector<double>* w) {
      for (std::size_t j = 0; j < w->size(); ++j)
        (*w)[j] -= double(kRate) * std::exp(-double(0.05f) * double(step.delay)) * double(step.gradient[j]);
    };
  });
}

TEST(AsyncRulesTest, DelayThresholdSgdDiscardsLateGradients) {
  OptimizerSpec spec = SpecOf("delay_threshold_sgd");
  spec.options["delay_max"] = 3;
  Row row(spec, {1.0f});
  row.Take({{1.0f}, {}, 3});
  EXPECT_EQ(row.values()[0], 1.0f);
  row.Take({{1.0f}, {}, 2});
  EXPECT_EQ(row.values()[0], 1.0f - kRate);
}

TEST(AsyncRulesTest, BufferedSgd) {
  ExpectFollows("buffered_sgd", [](std::size_t dim) -> Reference {
    return [sum = std::vector<double>(dim), n = 0](const Step& step, std::vector<double>* w) mutable {
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += double(step.gradient[j]);
      if (++n < 4) return;
      for (std::size_t j = 0; j < sum.size(); ++j) (*w)[j] -= double(kRate) * sum[j] / 4;
      sum.assign(sum.size(), 0);
      n = 0;
    };
  });
}

// FedBuff with a buffer of all workers is synchronous averaging: the step of their mean.
TEST(AsyncRulesTest, ABufferOfAllWorkersStepsByTheirMean) {
  SplitMix random(5);
  const std::vector<float> start = RandomFloats(16, random);
  OptimizerSpec spec = SpecOf("buffered_sgd");
  spec.options["buffer"] = 4;
  Row buffered(spec, start), plain(SpecOf("sgd"), start);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> mean(16);
    for (int worker = 0; worker < 4; ++worker) {
      const std::vector<float> delta = RandomFloats(16, random);
      for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += delta[j];
      buffered.Take({delta, {}, 0});
    }
    for (float& value : mean) value *= 0.25f;
    plain.Take({mean, {}, 0});
    EXPECT_TRUE(SameBits(buffered.values(), plain.values())) << round;
  }
}

TEST(AsyncRulesTest, BufferedSgdWeighsDelayedPushes) {
  OptimizerSpec spec = SpecOf("buffered_sgd");
  spec.options = {{"buffer", 2.0f}, {"delay_power", 0.5f}};
  Row row(spec, {0.0f});
  row.Take({{1.0f}, {}, 3});
  EXPECT_EQ(row.values()[0], 0.0f) << "one of two";
  row.Take({{1.0f}, {}, 0});
  EXPECT_NEAR(row.values()[0], -double(kRate) * (0.5 + 1) / 2, 1e-8);
}

TEST(AsyncRulesTest, KAsyncSgdStepsOnceKWorkersHavePushed) {
  OptimizerSpec spec = SpecOf("k_async_sgd");
  spec.options["workers_min"] = 3;
  Row row(spec, {1.0f, -1.0f});
  const auto take = [&](std::uint32_t worker, float g) { row.Take({{g, 0}, {}, 0, WorkerRank(worker)}); };
  take(0, 1);
  take(90, 2);
  take(0, 3);
  EXPECT_EQ(row.values(), (std::vector<float>{1.0f, -1.0f})) << "two workers";
  take(30, 6);
  EXPECT_NEAR(row.values()[0], 1.0 - double(kRate) * (1 + 2 + 3 + 6) / 4, 1e-6);
  for (const float slot : row.slots()) EXPECT_EQ(slot, 0.0f);
  take(30, 1);
  take(0, 1);
  const float before = row.values()[0];
  take(95, 4);
  EXPECT_NEAR(row.values()[0], double(before) - double(kRate) * 2, 1e-6);
  row.Take({{5, 0}, {}, 0, kNoWorker});
  EXPECT_NEAR(row.values()[0], double(before) - double(kRate) * 7, 1e-6) << "a sum over workers is a step";
}

TEST(AsyncRulesTest, DelayedNesterov) {
  ExpectFollows("delayed_nesterov", [](std::size_t dim) -> Reference {
    return [m = std::vector<double>(dim), sum = std::vector<double>(dim), n = 0](const Step& step,
                                                                                 std::vector<double>* w) mutable {
      for (std::size_t j = 0; j < m.size(); ++j) {
        sum[j] += double(step.gradient[j]);
        (*w)[j] -= double(kRate) * double(step.gradient[j]) / 4;
      }
      if (++n < 4) return;
      for (std::size_t j = 0; j < m.size(); ++j) {
        m[j] = double(0.9f) * m[j] + sum[j] / 4;
        (*w)[j] -= double(kRate) * double(0.9f) * m[j];
      }
      sum.assign(sum.size(), 0);
      n = 0;
    };
  });
}

// `next`: v after a step with this squared gradient.
void ExpectFollowsFed(const char* kind, const std::function<double(double v, double square)>& next) {
  ExpectFollows(kind, [&](std::size_t dim) -> Reference {
    return [next, m = std::vector<double>(dim), v = std::vector<double>(dim)](const Step& step,
                                                                              std::vector<double>* w) mutable {
      for (std::size_t j = 0; j < m.size(); ++j) {
        const double g = double(step.gradient[j]);
        m[j] = double(0.9f) * m[j] + (1 - double(0.9f)) * g;
        v[j] = next(v[j], g * g);
        (*w)[j] -= double(kRate) * m[j] / (std::sqrt(v[j]) + double(1e-3f));
      }
    };
  });
}

TEST(AsyncRulesTest, FedAdagrad) {
  ExpectFollowsFed("fed_adagrad", [](double v, double square) { return v + square; });
}

TEST(AsyncRulesTest, FedAdam) {
  constexpr double kKept = double(0.999f);
  ExpectFollowsFed("fed_adam", [](double v, double square) { return kKept * v + (1 - kKept) * square; });
}

TEST(AsyncRulesTest, FedYogi) {
  ExpectFollowsFed("fed_yogi", [](double v, double square) {
    const double change = (1 - double(0.999f)) * square;
    return v > square ? v - change : (v < square ? v + change : v);
  });
}

// Settings that turn each rule into plain SGD.
TEST(AsyncRulesTest, DegenerateSettingsAreSgd) {
  const std::pair<const char*, NamedOptions> kinds[] = {{"exponential_staleness_sgd", {{"delay_decay", 0.0f}}},
                                                        {"delay_threshold_sgd", {{"delay_max", 1e6f}}},
                                                        {"buffered_sgd", {{"buffer", 1.0f}}},
                                                        {"k_async_sgd", {{"workers_min", 1.0f}}},
                                                        {"dc_asgd", {{"dc_lambda", 0.0f}}}};
  for (const auto& [kind, options] : kinds) {
    SplitMix random(5);
    const std::vector<float> start = RandomFloats(16, random);
    OptimizerSpec spec = SpecOf(kind);
    spec.options = options;
    Row row(spec, start), plain(SpecOf("sgd"), start);
    for (int i = 0; i < 50; ++i) {
      const Step step{RandomFloats(16, random), start, random.Below(9)};
      row.Take(step);
      plain.Take(step);
    }
    EXPECT_TRUE(SameBits(row.values(), plain.values())) << kind;
  }
}

TEST(AsyncRulesTest, AreTheSameOnEveryInstructionSet) {
  for (const char* kind : {"signum", "staleness_aware_sgd", "delay_adaptive_sgd", "dc_asgd", "dc_asgd_adaptive",
                           "gap_aware", "exponential_staleness_sgd", "delay_threshold_sgd", "buffered_sgd",
                           "k_async_sgd", "delayed_nesterov", "fed_adagrad", "fed_adam", "fed_yogi"})
    for (const std::size_t dim : {1, 7, 16, 37, 100}) {
      SCOPED_TRACE(std::string(kind) + ", dim " + std::to_string(dim));
      ExpectSameBitsOnEveryTarget([&] {
        SplitMix random(dim);
        Row row(SpecOf(kind), RandomFloats(dim, random));
        Steps(dim, [&]() -> const std::vector<float>& { return row.values(); }, [&](const Step& s) { row.Take(s); });
        std::vector<float> all = row.values();
        all.insert(all.end(), row.slots().begin(), row.slots().end());
        all.insert(all.end(), row.state().begin(), row.state().end());
        return all;
      });
    }
}

}  // namespace
}  // namespace tarn::kernels

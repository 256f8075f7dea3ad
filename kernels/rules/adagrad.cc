// Adagrad: a += g^2;  w -= lr g / (sqrt(a) + epsilon). Slot a. Duchi, Hazan, Singer: "Adaptive subgradient methods for
// online learning and stochastic optimization", JMLR 2011.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/adagrad.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct Adagrad {
  explicit Adagrad(const RuleCall& call) : rate(call.context.rate), epsilon(call.options[0]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT a, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT) const {
    for (std::uint32_t j = 0; j < dim; ++j) {
      a[j] = Bounded(a[j] + g[j] * g[j]);
      w[j] -= rate * g[j] / (std::sqrt(a[j]) + epsilon);
    }
  }
  float rate, epsilon;
};

void ApplyAdagrad(const RuleCall& call) { ApplyRows<Adagrad>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyAdagrad);

constexpr RuleOption kOptions[] = {
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
    {"initial_accumulator", 0.0f, kNotNegative, "initial value of a"},
};
constexpr RuleSlot kSlots[] = {{.name = "a", .starts_as = "initial_accumulator"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule adagrad = {
    .name = "adagrad",
    .meaning = "a += g^2; w -= lr g / (sqrt(a) + epsilon)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyAdagrad)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

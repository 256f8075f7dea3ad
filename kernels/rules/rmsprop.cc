// RMSProp: v = rho v + (1 - rho) g^2;  w -= lr g / (sqrt(v) + epsilon). Slot v. Tieleman, Hinton: lecture 6.5 of
// "Neural networks for machine learning", 2012.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/rmsprop.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct RmsProp {
  explicit RmsProp(const RuleCall& call)
      : rate(call.context.rate), rho(call.options[0]), rest(1.0f - rho), epsilon(call.options[1]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT v, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT) const {
    for (std::uint32_t j = 0; j < dim; ++j) {
      v[j] = Bounded(rho * v[j] + rest * (g[j] * g[j]));
      w[j] -= rate * g[j] / (std::sqrt(v[j]) + epsilon);
    }
  }
  float rate, rho, rest, epsilon;
};

void ApplyRmsProp(const RuleCall& call) { ApplyRows<RmsProp>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyRmsProp);

constexpr RuleOption kOptions[] = {
    {"rho", 0.9f, kDecay, "decay factor of the mean of g^2"},
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
};
constexpr RuleSlot kSlots[] = {{"v"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule rmsprop = {
    .name = "rmsprop",
    .meaning = "v = rho v + (1 - rho) g^2; w -= lr g / (sqrt(v) + epsilon)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyRmsProp)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

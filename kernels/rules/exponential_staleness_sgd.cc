// SGD with a rate that falls exponentially with the gradient delay d: w -= lr e^(-delay_decay d) g. Chan, Lane:
// "Distributed asynchronous optimization of convolutional neural networks", Interspeech 2014.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/exponential_staleness_sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

#include "kernels/math.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct ExponentialStalenessSgd {
  explicit ExponentialStalenessSgd(const RuleCall& call)
      : rate(float(double(call.context.rate) * math::Exp(-double(call.options[0]) * double(call.context.delay)))) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g,
                             const float*) const {
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= rate * g[j];
  }
  float rate;
};

void ApplyExponentialStalenessSgd(const RuleCall& call) { ApplyRows<ExponentialStalenessSgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyExponentialStalenessSgd);

constexpr RuleOption kOptions[] = {
    {"delay_decay", 0.05f, kNotNegative, "how fast the rate falls with the gradient delay; 0: not at all, as sgd"},
};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule exponential_staleness_sgd = {
    .name = "exponential_staleness_sgd",
    .meaning = "w -= lr e^(-delay_decay d) g",
    .options = kOptions,
    .by_section = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyExponentialStalenessSgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

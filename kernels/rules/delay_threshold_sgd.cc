// Ringmaster ASGD: w -= lr g if the gradient delay d is below delay_max; else the gradient is discarded. Maranjyan,
// Tyurin, Richtarik: "Ringmaster ASGD: the first asynchronous SGD with optimal time complexity", ICML 2025.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/delay_threshold_sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

bool Discards(const RuleContext& context, std::span<const float> options) {
  return !(double(context.delay) < double(options[0]));
}

struct DelayThresholdSgd {
  explicit DelayThresholdSgd(const RuleCall& call)
      : rate(Discards(call.context, call.options) ? 0.0f : call.context.rate) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g,
                             const float*) const {
    if (rate == 0.0f) return;
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= rate * g[j];
  }
  float rate;
};

void ApplyDelayThresholdSgd(const RuleCall& call) { ApplyRows<DelayThresholdSgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyDelayThresholdSgd);
HWY_EXPORT(Discards);

constexpr RuleOption kOptions[] = {
    {"delay_max", 16.0f, kPositive, "gradients with this delay or a larger one are discarded"},
};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule delay_threshold_sgd = {
    .name = "delay_threshold_sgd",
    .meaning = "w -= lr g if d < delay_max, else nothing",
    .options = kOptions,
    .by_section = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyDelayThresholdSgd)(call); },
    .discards = [](const RuleContext& context,
                   std::span<const float> options) { return HWY_DYNAMIC_DISPATCH(Discards)(context, options); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

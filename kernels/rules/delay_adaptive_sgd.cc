// Delay-adaptive SGD: w -= lr min(1, D / d) g, with the gradient delay d and the mean D of the delays of all sections
// of the partition so far, including this one. Only gradients with a delay above the mean are damped. Koloskova, Stich,
// Jaggi: "Sharper convergence guarantees for asynchronous SGD for distributed and federated learning", NeurIPS 2022.
// Their threshold is the number of gradients computed at a time; the mean delay follows that number and needs no
// setting. State of a partition: D and the number of sections, which saturates at 2^24.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/delay_adaptive_sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct DelayAdaptiveSgd {
  explicit DelayAdaptiveSgd(const RuleCall& call) : rate(call.context.rate) {
    constexpr float kSectionsMax = 1 << 24;  // the largest count that a float reaches by adding one
    const float delay = float(call.context.delay);
    float& mean = call.partition_state[0];
    float& sections = call.partition_state[1];
    if (call.begins_section) {
      sections = std::min(sections + 1.0f, kSectionsMax);
      mean += (delay - mean) / sections;
    }
    if (delay > mean) rate *= mean / delay;
  }
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g,
                             const float*) const {
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= rate * g[j];
  }
  float rate;
};

void ApplyDelayAdaptiveSgd(const RuleCall& call) { ApplyRows<DelayAdaptiveSgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyDelayAdaptiveSgd);

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule delay_adaptive_sgd = {
    .name = "delay_adaptive_sgd",
    .meaning = "w -= lr min(1, D / d) g, with the mean D of d over all sections of the partition",
    .partition_floats = 2,
    .by_section = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyDelayAdaptiveSgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

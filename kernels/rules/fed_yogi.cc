// FedYogi: m = beta1 m + (1 - beta1) g; v -= (1 - beta2) g^2 sign(v - g^2); w -= lr m / (sqrt(v) + adaptivity), for
// pushed deltas, without Adam's corrections. Slots m, v. Reddi et al.: "Adaptive federated optimization", ICLR 2021.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/fed_yogi.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct FedYogi {
  explicit FedYogi(const RuleCall& call)
      : rate(call.context.rate), beta1(call.options[0]), beta2(call.options[1]), adaptivity(call.options[2]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m, const float* HWY_RESTRICT g,
                             const float*) const {
    float* HWY_RESTRICT v = m + dim;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = beta1 * m[j] + (1.0f - beta1) * g[j];
      const float square = Bounded(g[j] * g[j]);
      const float change = (1.0f - beta2) * square;
      v[j] = Bounded(v[j] > square ? v[j] - change : (v[j] < square ? v[j] + change : v[j]));
      w[j] -= rate * m[j] / (std::sqrt(v[j]) + adaptivity);
    }
  }
  float rate, beta1, beta2, adaptivity;
};

void ApplyFedYogi(const RuleCall& call) { ApplyRows<FedYogi>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyFedYogi);

constexpr RuleOption kOptions[] = {
    {"beta1", 0.9f, kDecay, "decay factor of the mean of g"},
    {"beta2", 0.999f, kDecay, "decay factor of the mean of g^2"},
    {"adaptivity", 1e-3f, kPositive, "added to sqrt(v); large values make the rule behave like momentum"},
};
constexpr RuleSlot kSlots[] = {{"m"}, {"v"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule fed_yogi = {
    .name = "fed_yogi",
    .meaning = "m = beta1 m + (1 - beta1) g; v -= (1 - beta2) g^2 sign(v - g^2); w -= lr m / (sqrt(v) + adaptivity)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyFedYogi)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

// DC-ASGD with an adaptive weight: v = rho v + (1 - rho) g^2;  w -= lr (g + (dc_lambda0 / sqrt(v + epsilon)) g^2 (w -
// p)), with the row p as its worker pulled it. Slot v. Zheng, Meng, Wang, Chen, Yu, Ma, Liu: "Asynchronous stochastic
// gradient descent with delay compensation", ICML 2017 (DC-ASGD-a).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/dc_asgd_adaptive.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct DcAsgdAdaptive {
  explicit DcAsgdAdaptive(const RuleCall& call)
      : rate(call.context.rate), lambda(call.options[0]), rho(call.options[1]), epsilon(call.options[2]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT v, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT p) const {
    const float rest = 1.0f - rho;
    for (std::uint32_t j = 0; j < dim; ++j) {
      v[j] = Bounded(rho * v[j] + rest * (g[j] * g[j]));
      const float weight = lambda / std::sqrt(v[j] + epsilon);
      const float correction = Bounded(weight * g[j] * g[j]) * (w[j] - p[j]);
      w[j] -= rate * (g[j] + Bounded(-Bounded(-correction)));  // finite, whatever its sign
    }
  }
  float rate, lambda, rho, epsilon;
};

void ApplyDcAsgdAdaptive(const RuleCall& call) { ApplyRows<DcAsgdAdaptive>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyDcAsgdAdaptive);

constexpr RuleOption kOptions[] = {
    {"dc_lambda0", 2.0f, kNotNegative, "weight of the compensation before it is divided; 0: none, as sgd"},
    {"rho", 0.9f, kDecay, "decay factor of the mean of g^2"},
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
};
constexpr RuleSlot kSlots[] = {{"v"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule dc_asgd_adaptive = {
    .name = "dc_asgd_adaptive",
    .meaning = "v = rho v + (1 - rho) g^2; w -= lr (g + dc_lambda0 / sqrt(v + epsilon) g^2 (w - p))",
    .options = kOptions,
    .slots = kSlots,
    .needs_pulled = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyDcAsgdAdaptive)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

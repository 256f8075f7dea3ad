// DC-ASGD, delay compensation with a constant: w -= lr (g + dc_lambda g^2 (w - p)), with the row p as its worker pulled
// it. Zheng, Meng, Wang, Chen, Yu, Ma, Liu: "Asynchronous stochastic gradient descent with delay compensation", ICML
// 2017 (DC-ASGD-c).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/dc_asgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct DcAsgd {
  explicit DcAsgd(const RuleCall& call) : rate(call.context.rate), lambda(call.options[0]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT p) const {
    for (std::uint32_t j = 0; j < dim; ++j) {
      const float correction = Bounded(lambda * g[j] * g[j]) * (w[j] - p[j]);
      w[j] -= rate * (g[j] + Bounded(-Bounded(-correction)));  // finite, whatever its sign
    }
  }
  float rate, lambda;
};

void ApplyDcAsgd(const RuleCall& call) { ApplyRows<DcAsgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyDcAsgd);

constexpr RuleOption kOptions[] = {
    {"dc_lambda", 0.04f, kNotNegative, "weight of the compensation; 0: none, as sgd"},
};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule dc_asgd = {
    .name = "dc_asgd",
    .meaning = "w -= lr (g + dc_lambda g^2 (w - p))",
    .options = kOptions,
    .needs_pulled = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyDcAsgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

// SGD: w -= lr g.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct Sgd {
  explicit Sgd(const RuleCall& call) : rate(call.context.rate) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g,
                             const float*) const {
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= rate * g[j];
  }
  float rate;
};

void ApplySgd(const RuleCall& call) { ApplyRows<Sgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplySgd);

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule sgd = {
    .name = "sgd",
    .meaning = "w -= lr g",
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplySgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

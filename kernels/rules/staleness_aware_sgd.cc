// Staleness-aware SGD: w -= lr / max(d, 1) g, with the gradient delay d. Zhang, Gupta, Lian, Liu: "Staleness-aware
// async-SGD for distributed deep learning", IJCAI 2016: its staleness is the number of updates between a pull and its
// push.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/staleness_aware_sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct StalenessAwareSgd {
  explicit StalenessAwareSgd(const RuleCall& call)
      : rate(call.context.delay < 2 ? call.context.rate
                                    : float(double(call.context.rate) / double(call.context.delay))) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g,
                             const float*) const {
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= rate * g[j];
  }
  float rate;
};

void ApplyStalenessAwareSgd(const RuleCall& call) { ApplyRows<StalenessAwareSgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyStalenessAwareSgd);

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule staleness_aware_sgd = {
    .name = "staleness_aware_sgd",
    .meaning = "w -= lr / max(d, 1) g",
    .by_section = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyStalenessAwareSgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

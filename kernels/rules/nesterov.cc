// Nesterov: m = momentum m + g;  w -= lr (g + momentum m). Slot m. Sutskever et al.: "On the importance of
// initialization and momentum in deep learning", ICML 2013, in the form that evaluates the gradient at w.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/nesterov.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct Nesterov {
  explicit Nesterov(const RuleCall& call) : rate(call.context.rate), momentum(call.options[0]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT) const {
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = momentum * m[j] + g[j];
      w[j] -= rate * (g[j] + momentum * m[j]);
    }
  }
  float rate, momentum;
};

void ApplyNesterov(const RuleCall& call) { ApplyRows<Nesterov>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyNesterov);

constexpr RuleOption kOptions[] = {
    {"momentum", 0.9f, kDecay, "decay factor of the momentum"},
};
constexpr RuleSlot kSlots[] = {{"m"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule nesterov = {
    .name = "nesterov",
    .meaning = "m = momentum m + g; w -= lr (g + momentum m)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyNesterov)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

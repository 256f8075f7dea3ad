// Signum, signSGD with momentum: m = beta1 m + (1 - beta1) g;  w -= lr sign(m). Slot m. Bernstein, Wang,
// Azizzadenesheli, Anandkumar: "signSGD: compressed optimisation for non-convex problems", ICML 2018 (SIGNUM).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/signum.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct Signum {
  explicit Signum(const RuleCall& call) : rate(call.context.rate), beta(call.options[0]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT) const {
    const float rest = 1.0f - beta;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = beta * m[j] + rest * g[j];
      const float step = m[j] > 0.0f ? rate : 0.0f;
      w[j] -= m[j] < 0.0f ? -rate : step;
    }
  }
  float rate, beta;
};

void ApplySignum(const RuleCall& call) { ApplyRows<Signum>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplySignum);

constexpr RuleOption kOptions[] = {
    {"beta1", 0.9f, kDecay, "decay factor of the mean of g"},
};
constexpr RuleSlot kSlots[] = {{"m"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule signum = {
    .name = "signum",
    .meaning = "m = beta1 m + (1 - beta1) g; w -= lr sign(m)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplySignum)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

// FTRL-proximal: s = (sqrt(n + g^2) - sqrt(n)) / lr;  z += g - s w;  n += g^2;
// w = 0 if |z| <= ftrl_l1, else (sign(z) ftrl_l1 - z) / ((ftrl_beta + sqrt(n)) / lr + ftrl_l2). Slots z and n. McMahan
// et al.: "Ad click prediction: a view from the trenches", KDD 2013, algorithm 1. Meant for rows that start at zero:
// the first step forgets most of a random initial value.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/ftrl.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct Ftrl {
  explicit Ftrl(const RuleCall& call)
      : rate(call.context.rate), beta(call.options[1]), l1(call.options[2]), l2(call.options[3]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots, const float* HWY_RESTRICT g,
                             const float*) const {
    float* HWY_RESTRICT z = slots;
    float* HWY_RESTRICT n = slots + dim;
    for (std::uint32_t j = 0; j < dim; ++j) {
      const float n_new = Bounded(n[j] + g[j] * g[j]);
      const float root = std::sqrt(n_new);
      const float sigma = (root - std::sqrt(n[j])) / rate;
      const float z_new = z[j] + (g[j] - sigma * w[j]);
      const float signed_l1 = z_new < 0.0f ? -l1 : l1;
      const float moved = (signed_l1 - z_new) / ((beta + root) / rate + l2);
      w[j] = std::abs(z_new) <= l1 ? 0.0f : moved;
      z[j] = z_new;
      n[j] = n_new;
    }
  }
  float rate, beta, l1, l2;
};

void ApplyFtrl(const RuleCall& call) { ApplyRows<Ftrl>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyFtrl);

constexpr RuleOption kOptions[] = {
    {"initial_accumulator", 0.0f, kNotNegative, "initial value of n"},
    {"ftrl_beta", 1.0f, kPositive, "added to sqrt(n) in the divisor of the rate"},
    {"ftrl_l1", 0.0f, kNotNegative, "w is 0 while abs(z) is at most this"},
    {"ftrl_l2", 0.0f, kNotNegative, "L2 regularization of w"},
};
constexpr RuleSlot kSlots[] = {{"z"}, {.name = "n", .starts_as = "initial_accumulator"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule ftrl = {
    .name = "ftrl",
    .meaning =
        "z += g - w (sqrt(n + g^2) - sqrt(n)) / lr; n += g^2; w = 0 if abs(z) <= ftrl_l1, else (sign(z) ftrl_l1 - z) / "
        "((ftrl_beta + sqrt(n)) / lr + ftrl_l2)",
    .options = kOptions,
    .slots = kSlots,
    .divides_by_rate = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyFtrl)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

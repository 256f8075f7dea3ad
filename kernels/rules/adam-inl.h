// The step of Adam and AdamW. Included after "hwy/foreach_target.h", once for each instruction set.
#include "kernels/rules/rule-inl.h"

#if defined(TARN_KERNELS_RULES_ADAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RULES_ADAM_INL_H_
#undef TARN_KERNELS_RULES_ADAM_INL_H_
#else
#define TARN_KERNELS_RULES_ADAM_INL_H_
#endif

#include <algorithm>

#include "kernels/math.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct Adam {
  explicit Adam(const RuleCall& call)
      : learning_rate(call.context.rate), beta1(call.options[0]), beta2(call.options[1]), epsilon(call.options[2]) {}

  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots, const float* HWY_RESTRICT g,
                             const float*) {
    constexpr float kStepsMax = 1 << 24;  // the largest count that a float reaches by adding one
    float* HWY_RESTRICT m = slots;
    float* HWY_RESTRICT v = slots + dim;
    float& count = slots[2 * dim];
    count = std::min(count + 1.0f, kStepsMax);
    Correct(count);
    const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float to_rate = rate, scale = root_scale, least = epsilon, keep1 = beta1, keep2 = beta2;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = keep1 * m[j] + rest1 * g[j];
      v[j] = Bounded(keep2 * v[j] + rest2 * (g[j] * g[j]));
      w[j] -= to_rate * m[j] / (std::sqrt(v[j]) * scale + least);
    }
  }

  // The bias corrections for a row's number of steps, cached because neighbouring rows often have the same number.
  void Correct(float count) {
    if (count == steps) return;
    const auto t = static_cast<std::uint64_t>(count);
    steps = count;
    rate = float(double(learning_rate) / (1.0 - math::Power(double(beta1), t)));
    root_scale = float(1.0 / std::sqrt(1.0 - math::Power(double(beta2), t)));
  }

  float learning_rate, beta1, beta2, epsilon;
  float steps = 0;
  float rate = 0;        // lr / (1 - beta1^t)
  float root_scale = 0;  // 1 / sqrt(1 - beta2^t)
};

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle

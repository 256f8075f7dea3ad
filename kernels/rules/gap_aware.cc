// Gap-aware SGD with momentum, per parameter: t += 1;  v = rho v + (1 - rho) g^2;
// G = 1 + |w - p| / (lr (sqrt(v / (1 - rho^t)) + epsilon));  m = momentum m + g / G;  w -= lr m, with the row p as its
// worker pulled it. G is the gap: 1 + the number of average steps between w and p; an average step is the rate times
// the root of the mean of g^2. Slots: v and m, and one float per row, t, its number of steps, which saturates at 2^24.
// Barkai, Hakimi, Schuster: "Gap-aware mitigation of gradient staleness", ICLR 2020, which penalizes a gradient
// linearly by its gap.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/gap_aware.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

#include <algorithm>

#include "kernels/math.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct GapAware {
  explicit GapAware(const RuleCall& call)
      : rate(call.context.rate), momentum(call.options[0]), rho(call.options[1]), epsilon(call.options[2]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT p) const {
    constexpr float kStepsMax = 1 << 24;  // the largest count that a float reaches by adding one
    float* HWY_RESTRICT v = slots;
    float* HWY_RESTRICT m = slots + dim;
    float& count = slots[2 * dim];
    count = std::min(count + 1.0f, kStepsMax);
    const float root_scale = float(1.0 / std::sqrt(1.0 - math::Power(double(rho), static_cast<std::uint64_t>(count))));
    const float rest = 1.0f - rho;
    for (std::uint32_t j = 0; j < dim; ++j) {
      v[j] = Bounded(rho * v[j] + rest * (g[j] * g[j]));
      const float step = rate * (std::sqrt(v[j]) * root_scale + epsilon);
      const float away = std::fabs(w[j] - p[j]);
      const float gap = away == 0.0f ? 1.0f : 1.0f + away / step;  // servers flush a tiny step to 0
      m[j] = momentum * m[j] + g[j] / gap;
      w[j] -= rate * m[j];
    }
  }
  float rate, momentum, rho, epsilon;
};

void ApplyGapAware(const RuleCall& call) { ApplyRows<GapAware>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyGapAware);

constexpr RuleOption kOptions[] = {
    {"momentum", 0.9f, kDecay, "decay factor of the momentum"},
    {"rho", 0.9f, kDecay, "decay factor of the mean of g^2"},
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
};
constexpr RuleSlot kSlots[] = {{"v"}, {"m"}, {.name = "t", .size = SlotSize::kRow}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule gap_aware = {
    .name = "gap_aware",
    .meaning =
        "t += 1; v = rho v + (1 - rho) g^2; G = 1 + abs(w - p) / (lr (sqrt(v / (1 - rho^t)) + epsilon)); "
        "m = momentum m + g / G; w -= lr m",
    .options = kOptions,
    .slots = kSlots,
    .needs_pulled = true,
    .divides_by_rate = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyGapAware)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

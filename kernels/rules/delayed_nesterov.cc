// Delayed Nesterov, for asynchronous pushes of deltas: w -= lr g / buffer and s += g; at every buffer-th push of a row
// m = momentum m + s / buffer, w -= lr momentum m, s = 0. The momentum thus changes once per `buffer` pushes. Liu et
// al.: "Asynchronous local-SGD training for language modeling", 2024. Slots m, s, and n: one float per row, the number
// of pushes in s.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/delayed_nesterov.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct DelayedNesterov {
  explicit DelayedNesterov(const RuleCall& call)
      : rate(call.context.rate), momentum(call.options[0]), buffer(call.options[1]), share(1.0f / call.options[1]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m, const float* HWY_RESTRICT g,
                             const float*) const {
    float* HWY_RESTRICT s = m + dim;
    float& n = m[2 * dim];
    n += 1.0f;
    for (std::uint32_t j = 0; j < dim; ++j) {
      s[j] += g[j];
      w[j] -= rate * (share * g[j]);
    }
    if (n < buffer) return;
    n = 0.0f;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = momentum * m[j] + share * s[j];
      w[j] -= rate * (momentum * m[j]);
      s[j] = 0.0f;
    }
  }
  float rate, momentum, buffer, share;
};

void ApplyDelayedNesterov(const RuleCall& call) { ApplyRows<DelayedNesterov>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyDelayedNesterov);

constexpr RuleOption kOptions[] = {
    {"momentum", 0.9f, kDecay, "decay factor of the momentum"},
    {"buffer", 4.0f, Range{1, 1e6}, "whole number of pushes of a row after which the momentum changes"},
};
constexpr RuleSlot kSlots[] = {{"m"}, {"s"}, {.name = "n", .size = SlotSize::kRow}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule delayed_nesterov = {
    .name = "delayed_nesterov",
    .meaning =
        "w -= lr g / buffer; s += g; at every buffer-th push of the row m = momentum m + s / buffer, w -= lr momentum "
        "m, s = 0",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyDelayedNesterov)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

// Averages the gradients of `buffer` pushes before a step: s += (1 + d)^(-delay_power) g, and at every buffer-th push
// of a row w -= lr s / buffer, s = 0. With delay_power 0 it is K-batch-async SGD (Dutta et al., "Slow and stale
// gradients can win the race", AISTATS 2018), with 0.5 and pushed deltas FedBuff (Nguyen et al., AISTATS 2022). Each
// row counts its own pushes: exact for dense tables, whose rows are all in every push; a sparse row waits for its own
// buffer-th push. d: gradient delay. Slots: s (dim floats) and n (one float per row), the number of pushes in s.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/buffered_sgd.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

#include "kernels/math.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct BufferedSgd {
  explicit BufferedSgd(const RuleCall& call)
      : rate(call.context.rate / call.options[0]),
        buffer(call.options[0]),
        weight(float(math::Exp(-double(call.options[1]) * math::Log(1.0 + double(call.context.delay))))) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT s, const float* HWY_RESTRICT g,
                             const float*) const {
    float& n = s[dim];
    n += 1.0f;
    for (std::uint32_t j = 0; j < dim; ++j) s[j] += weight * g[j];
    if (n < buffer) return;
    n = 0.0f;
    for (std::uint32_t j = 0; j < dim; ++j) {
      w[j] -= rate * s[j];
      s[j] = 0.0f;
    }
  }
  float rate, buffer, weight;
};

void ApplyBufferedSgd(const RuleCall& call) { ApplyRows<BufferedSgd>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyBufferedSgd);

constexpr RuleOption kOptions[] = {
    {"buffer", 4.0f, Range{1, 1e6}, "whole number of pushes of a row after which one step is taken"},
    {"delay_power", 0.0f, Range{0, 10}, "a push with the delay d has the weight (1 + d)^-delay_power"},
};
constexpr RuleSlot kSlots[] = {{"s"}, {.name = "n", .size = SlotSize::kRow}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule buffered_sgd = {
    .name = "buffered_sgd",
    .meaning = "s += (1 + d)^(-delay_power) g; at every buffer-th push of the row w -= lr s / buffer, s = 0",
    .options = kOptions,
    .slots = kSlots,
    .by_section = true,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyBufferedSgd)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

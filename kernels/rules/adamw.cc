// AdamW: w -= lr weight_decay w, then Adam. A row decays only in the steps that push it. Loshchilov, Hutter: "Decoupled
// weight decay regularization", ICLR 2019.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/adamw.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/adam-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct AdamW {
  explicit AdamW(const RuleCall& call) : decay(call.context.rate * call.options[3]), adam(call) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots, const float* HWY_RESTRICT g,
                             const float*) {
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= decay * w[j];
    adam(dim, w, slots, g, nullptr);
  }
  float decay;
  Adam adam;
};

void ApplyAdamW(const RuleCall& call) { ApplyRows<AdamW>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyAdamW);

constexpr RuleOption kOptions[] = {
    {"beta1", 0.9f, kDecay, "decay factor of the mean of g"},
    {"beta2", 0.999f, kDecay, "decay factor of the mean of g^2"},
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
    {"weight_decay", 0.0f, kNotNegative, "decoupled from the gradient"},
};
constexpr RuleSlot kSlots[] = {{"m"}, {"v"}, {.name = "t", .size = SlotSize::kRow}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule adamw = {
    .name = "adamw",
    .meaning = "w -= lr weight_decay w, then as adam",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyAdamW)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

// Adam: t += 1;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2; w -= lr (m / (1 - beta1^t)) / (sqrt(v /
// (1 - beta2^t)) + epsilon). Slots m and v, and t: one float per row, the number of its steps; it saturates at 2^24,
// where both corrections are 1 for usual beta1 and beta2. Kingma, Ba: "Adam: a method for stochastic optimization",
// ICLR 2015.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/adam.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/adam-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

void ApplyAdam(const RuleCall& call) { ApplyRows<Adam>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyAdam);

constexpr RuleOption kOptions[] = {
    {"beta1", 0.9f, kDecay, "decay factor of the mean of g"},
    {"beta2", 0.999f, kDecay, "decay factor of the mean of g^2"},
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
};
constexpr RuleSlot kSlots[] = {{"m"}, {"v"}, {.name = "t", .size = SlotSize::kRow}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule adam = {
    .name = "adam",
    .meaning =
        "t += 1; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= lr (m / (1 - beta1^t)) / (sqrt(v / "
        "(1 - beta2^t)) + epsilon)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyAdam)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

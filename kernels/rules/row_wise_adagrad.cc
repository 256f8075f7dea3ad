// Row-wise Adagrad: a += mean(g^2) over the row;  w -= lr g / (sqrt(a) + epsilon). Slot a, one float for the row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rules/row_wise_adagrad.cc"
#include "hwy/foreach_target.h"
#include "kernels/rules/rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

struct RowWiseAdagrad {
  explicit RowWiseAdagrad(const RuleCall& call) : rate(call.context.rate), epsilon(call.options[0]) {}
  template <typename Width>
  HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT a, const float* HWY_RESTRICT g,
                             const float* HWY_RESTRICT) const {
    const double squares = SumOfTerms(dim, [g](std::size_t j) { return double(g[j]) * double(g[j]); });
    a[0] = Bounded(a[0] + float(squares / double(dim)));
    const float root = std::sqrt(a[0]) + epsilon;
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= rate * g[j] / root;
  }
  float rate, epsilon;
};

void ApplyRowWiseAdagrad(const RuleCall& call) { ApplyRows<RowWiseAdagrad>(call); }

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels::rules {

HWY_EXPORT(ApplyRowWiseAdagrad);

constexpr RuleOption kOptions[] = {
    {"epsilon", 1e-8f, kPositive, "keeps the divisor above 0"},
    {"initial_accumulator", 0.0f, kNotNegative, "initial value of a"},
};
constexpr RuleSlot kSlots[] = {{.name = "a", .size = SlotSize::kRow, .starts_as = "initial_accumulator"}};

// NOLINTNEXTLINE(readability-identifier-naming): named like its kind
extern const UpdateRule row_wise_adagrad = {
    .name = "row_wise_adagrad",
    .meaning = "a += mean(g^2) over the row; w -= lr g / (sqrt(a) + epsilon)",
    .options = kOptions,
    .slots = kSlots,
    .apply = [](const RuleCall& call) { HWY_DYNAMIC_DISPATCH(ApplyRowWiseAdagrad)(call); },
};

}  // namespace tarn::kernels::rules
#endif  // HWY_ONCE

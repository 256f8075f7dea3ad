// The loop over the rows of a call, which every rule uses. Included after "hwy/foreach_target.h", once for each
// instruction set.
//
//   struct Momentum {
//     explicit Momentum(const RuleCall& call) : rate(call.context.rate), momentum(call.options[0]) {}
//     template <typename Width>
//     HWY_INLINE void operator()(Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m, const float* HWY_RESTRICT g,
//                                const float* HWY_RESTRICT) {
//       for (std::uint32_t j = 0; j < dim; ++j) ...
//     }
//     float rate, momentum;
//   };
//   void Apply(const RuleCall& call) { ApplyRows<Momentum>(call); }
//
// A rule gives the same bits on every instruction set if its loops use only + - * / and sqrt, and its sums have the
// order of kernels/cpu/reduce.h.
#include "hwy/highway.h"

#if defined(TARN_KERNELS_RULES_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RULES_RULE_INL_H_
#undef TARN_KERNELS_RULES_RULE_INL_H_
#else
#define TARN_KERNELS_RULES_RULE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/limits.h"
#include "core/table/update_rule.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/rowwise.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// Keeps sums of squares finite. The square of a finite gradient may be infinite, and a row whose slot is infinite would
// never move again, or become NaN.
HWY_INLINE float Bounded(float squares) { return std::min(squares, std::numeric_limits<float>::max()); }

// The gradient after L2 and clipping, in `scratch`.
inline const float* Condition(const RuleCall& call, const float* HWY_RESTRICT w, const float* g,
                              float* HWY_RESTRICT scratch) {
  const float l2 = call.l2, clip = call.clip_value, norm_max = call.clip_norm;
  const std::uint32_t dim = call.dim;
  for (std::uint32_t j = 0; j < dim; ++j) scratch[j] = g[j];
  if (l2 != 0.0f)
    for (std::uint32_t j = 0; j < dim; ++j) scratch[j] += l2 * w[j];
  if (clip != 0.0f)
    for (std::uint32_t j = 0; j < dim; ++j) {
      const float low = scratch[j] < -clip ? -clip : scratch[j];
      scratch[j] = low > clip ? clip : low;
    }
  if (norm_max != 0.0f) {
    const double norm =
        std::sqrt(SumOfTerms(dim, [scratch](std::size_t j) { return double(scratch[j]) * double(scratch[j]); }));
    const float factor = norm > double(norm_max) ? float(double(norm_max) / norm) : 1.0f;
    for (std::uint32_t j = 0; j < dim; ++j) scratch[j] *= factor;
  }
  return scratch;
}

// Constructs a Step from the call and calls step(dim, values, slots, gradient, pulled) for each row. `dim` is a
// compile-time constant for common widths. `slots` is null for rules without slots, `pulled` for rules without
// needs_pulled.
template <typename Step>
void ApplyRows(const RuleCall& call) {
  const bool conditioned = call.l2 != 0.0f || call.clip_value != 0.0f || call.clip_norm != 0.0f;
  float scratch[limits::kRowDimMax];
  Step step(call);
  WithWidth(call.dim, [&](auto width) HWY_ATTR {
    for (std::size_t i = 0; i < call.n; ++i) {
      if (i + kRowsAhead < call.n) {
        PrefetchRow(call.values[i + kRowsAhead], width);
        if (call.slot_floats != 0) PrefetchRow(call.slots[i + kRowsAhead], call.slot_floats);
      }
      const float* g = call.gradients + i * width;
      if (conditioned) g = Condition(call, call.values[i], g, scratch);
      step(width, call.values[i], call.slot_floats == 0 ? nullptr : call.slots[i], g,
           call.pulled == nullptr ? nullptr : call.pulled + i * width);
    }
  });
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle

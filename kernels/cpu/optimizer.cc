#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/limits.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/rowwise.h"
#include "kernels/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include "hwy/foreach_target.h"  // compiles the rules below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// What all rows of one call share, and Adam's corrections for the step count seen last: neighbours often agree.
struct Step {
  const OptimizerSpec& spec;
  float lr;
  std::uint32_t dim;
  float adam_steps = 0;
  float adam_rate = 0;        // lr / (1 - beta1^t)
  float adam_root_scale = 0;  // 1 / sqrt(1 - beta2^t)
};

struct Sgd {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float*, const float* HWY_RESTRICT g) const {
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= s.lr * g[j];
  }
};

struct Momentum {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m,
                             const float* HWY_RESTRICT g) const {
    const float lr = s.lr, momentum = s.spec.momentum;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = momentum * m[j] + g[j];
      w[j] -= lr * m[j];
    }
  }
};

struct Nesterov {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT m,
                             const float* HWY_RESTRICT g) const {
    const float lr = s.lr, momentum = s.spec.momentum;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = momentum * m[j] + g[j];
      w[j] -= lr * (g[j] + momentum * m[j]);
    }
  }
};

struct Adagrad {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT a,
                             const float* HWY_RESTRICT g) const {
    const float lr = s.lr, epsilon = s.spec.epsilon;
    for (std::uint32_t j = 0; j < dim; ++j) {
      a[j] += g[j] * g[j];
      w[j] -= lr * g[j] / (std::sqrt(a[j]) + epsilon);
    }
  }
};

struct RowWiseAdagrad {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT a,
                             const float* HWY_RESTRICT g) const {
    const double squares = SumOfTerms(dim, [g](std::size_t j) { return double(g[j]) * double(g[j]); });
    a[0] += float(squares / double(dim));
    const float lr = s.lr, root = std::sqrt(a[0]) + s.spec.epsilon;
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= lr * g[j] / root;
  }
};

struct RmsProp {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT v,
                             const float* HWY_RESTRICT g) const {
    const float lr = s.lr, epsilon = s.spec.epsilon, rho = s.spec.rho, rest = 1.0f - s.spec.rho;
    for (std::uint32_t j = 0; j < dim; ++j) {
      v[j] = rho * v[j] + rest * (g[j] * g[j]);
      w[j] -= lr * g[j] / (std::sqrt(v[j]) + epsilon);
    }
  }
};

void PrepareAdam(Step& s, float steps) {
  if (steps == s.adam_steps) return;
  const auto t = static_cast<std::uint64_t>(steps);
  s.adam_steps = steps;
  s.adam_rate = float(double(s.lr) / (1.0 - math::Power(double(s.spec.beta1), t)));
  s.adam_root_scale = float(1.0 / std::sqrt(1.0 - math::Power(double(s.spec.beta2), t)));
}

struct Adam {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots,
                             const float* HWY_RESTRICT g) const {
    constexpr float kStepsMax = 1 << 24;  // the last count to which a float can add one
    float* HWY_RESTRICT m = slots;
    float* HWY_RESTRICT v = slots + dim;
    float& steps = slots[2 * dim];
    steps = std::min(steps + 1.0f, kStepsMax);
    PrepareAdam(s, steps);
    const float rate = s.adam_rate, root_scale = s.adam_root_scale, epsilon = s.spec.epsilon;
    const float beta1 = s.spec.beta1, rest1 = 1.0f - beta1, beta2 = s.spec.beta2, rest2 = 1.0f - beta2;
    for (std::uint32_t j = 0; j < dim; ++j) {
      m[j] = beta1 * m[j] + rest1 * g[j];
      v[j] = beta2 * v[j] + rest2 * (g[j] * g[j]);
      w[j] -= rate * m[j] / (std::sqrt(v[j]) * root_scale + epsilon);
    }
  }
};

struct AdamW {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots,
                             const float* HWY_RESTRICT g) const {
    const float decay = s.lr * s.spec.weight_decay;
    for (std::uint32_t j = 0; j < dim; ++j) w[j] -= decay * w[j];
    Adam{}(s, dim, w, slots, g);
  }
};

struct Ftrl {
  template <typename Width>
  HWY_INLINE void operator()(Step& s, Width dim, float* HWY_RESTRICT w, float* HWY_RESTRICT slots,
                             const float* HWY_RESTRICT g) const {
    const float lr = s.lr, beta = s.spec.ftrl_beta, l1 = s.spec.ftrl_l1, l2 = s.spec.ftrl_l2;
    float* HWY_RESTRICT z = slots;
    float* HWY_RESTRICT n = slots + dim;
    for (std::uint32_t j = 0; j < dim; ++j) {
      const float n_new = n[j] + g[j] * g[j];
      const float root = std::sqrt(n_new);
      const float sigma = (root - std::sqrt(n[j])) / lr;
      const float z_new = z[j] + (g[j] - sigma * w[j]);
      const float signed_l1 = z_new < 0.0f ? -l1 : l1;
      const float moved = (signed_l1 - z_new) / ((beta + root) / lr + l2);
      w[j] = std::abs(z_new) <= l1 ? 0.0f : moved;
      z[j] = z_new;
      n[j] = n_new;
    }
  }
};

// The gradient after L2 and clipping, in `scratch`.
const float* Condition(const Step& s, const float* HWY_RESTRICT w, const float* g, float* HWY_RESTRICT scratch) {
  const float l2 = s.spec.l2, clip = s.spec.clip_value, norm_max = s.spec.clip_norm;
  for (std::uint32_t j = 0; j < s.dim; ++j) scratch[j] = g[j];
  if (l2 != 0.0f)
    for (std::uint32_t j = 0; j < s.dim; ++j) scratch[j] += l2 * w[j];
  if (clip != 0.0f)
    for (std::uint32_t j = 0; j < s.dim; ++j) {
      const float low = scratch[j] < -clip ? -clip : scratch[j];
      scratch[j] = low > clip ? clip : low;
    }
  if (norm_max != 0.0f) {
    const double norm =
        std::sqrt(SumOfTerms(s.dim, [scratch](std::size_t j) { return double(scratch[j]) * double(scratch[j]); }));
    const float factor = norm > double(norm_max) ? float(double(norm_max) / norm) : 1.0f;
    for (std::uint32_t j = 0; j < s.dim; ++j) scratch[j] *= factor;
  }
  return scratch;
}

template <typename Rule>
void ApplyRows(Step s, std::uint32_t slot_floats, std::size_t n, float* const* values, float* const* slots,
               const float* gradients) {
  const bool conditioned = s.spec.l2 != 0.0f || s.spec.clip_value != 0.0f || s.spec.clip_norm != 0.0f;
  float scratch[limits::kRowDimMax];
  WithWidth(s.dim, [&](auto width) HWY_ATTR {
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kRowsAhead < n) {
        PrefetchRow(values[i + kRowsAhead], width);
        if (slot_floats != 0) PrefetchRow(slots[i + kRowsAhead], slot_floats);
      }
      const float* g = gradients + i * width;
      if (conditioned) g = Condition(s, values[i], g, scratch);
      Rule{}(s, width, values[i], slot_floats == 0 ? nullptr : slots[i], g);
    }
  });
}

void Apply(const OptimizerSpec& spec, float lr, std::uint32_t dim, std::size_t n, float* const* values,
           float* const* slots, const float* gradients) {
  const Step s{.spec = spec, .lr = lr, .dim = dim};
  const std::uint32_t slot_floats = SlotFloats(spec.kind, dim);
  switch (spec.kind) {
    case OptimizerKind::kSgd: return ApplyRows<Sgd>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kMomentum: return ApplyRows<Momentum>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kNesterov: return ApplyRows<Nesterov>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kAdagrad: return ApplyRows<Adagrad>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kRowWiseAdagrad: return ApplyRows<RowWiseAdagrad>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kRmsProp: return ApplyRows<RmsProp>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kAdam: return ApplyRows<Adam>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kAdamW: return ApplyRows<AdamW>(s, slot_floats, n, values, slots, gradients);
    case OptimizerKind::kFtrl:
      if (lr == 0.0f) return;  // the rule divides by the rate
      return ApplyRows<Ftrl>(s, slot_floats, n, values, slots, gradients);
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Apply);

void ApplyOptimizer(const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n, float* const* values,
                    float* const* slots, const float* gradients) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  HWY_DYNAMIC_DISPATCH(Apply)(spec, LearningRate(spec, push_clock), dim, n, values, slots, gradients);
}

float LearningRate(const OptimizerSpec& spec, Clock clock) {
  const ScheduleSpec& schedule = spec.schedule;
  const double rate = double(spec.learning_rate);
  const double factor = double(schedule.factor);
  if (clock.value < schedule.warmup_clocks)
    return float(rate * (double(clock.value + 1) / double(schedule.warmup_clocks)));
  const std::uint64_t past = clock.value - schedule.warmup_clocks;
  const std::uint64_t period = schedule.period_clocks;
  if (schedule.kind == ScheduleKind::kConstant || period == 0) return spec.learning_rate;
  if (schedule.kind == ScheduleKind::kStep) return float(rate * math::Power(factor, past / period));
  if (past >= period) return float(rate * factor);  // exactly: a floor of 0 means that nothing moves any more
  const double share = double(past) / double(period);
  return float(rate * (factor + (1.0 - factor) * (1.0 + math::CosPi(share)) / 2.0));
}

void InitSlots(const OptimizerSpec& spec, std::uint32_t dim, float* slots) {
  const std::uint32_t floats = SlotFloats(spec.kind, dim);
  if (floats == 0) return;
  const bool accumulates = spec.kind == OptimizerKind::kAdagrad || spec.kind == OptimizerKind::kRowWiseAdagrad;
  const std::uint32_t zeros = accumulates ? 0 : spec.kind == OptimizerKind::kFtrl ? dim : floats;
  std::fill(slots, slots + zeros, 0.0f);
  std::fill(slots + zeros, slots + floats, spec.initial_accumulator);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE

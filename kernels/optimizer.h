// Optimizers: how a row's values and slots take one gradient. The rules run on the shards, where the state is.
//
//   std::vector<float> slots(SlotFloats(spec.kind, dim));
//   InitSlots(spec, dim, slots.data());
//   ApplyOptimizer(spec, clock, dim, n, values, slot_pointers, gradients);   // n rows, in order
//
// Every function is pure (no state of its own) and may be called from any thread on disjoint rows. The bits of
// the result are the same on every x86-64, for every batch size and order of distinct rows: only IEEE + - * /
// and sqrt, no contraction, reductions of one fixed shape (kernels/elementwise.h). Among threads of one mode of
// subnormals, that is: those of shards count them as zero (kernels/subnormals.h).
//
// With w the values, g the gradient, lr = LearningRate(spec, push_clock), one row takes one step like this:
//   g += l2 * w                                     if l2 > 0
//   g  = min(max(g, -clip_value), clip_value)       if clip_value > 0
//   g *= clip_norm / |g|                            if clip_norm > 0 and |g| > clip_norm (2-norm of the row)
// and then by kind (slots in the order in which they lie in memory, `dim` floats each unless said):
//   SGD               -       w -= lr g
//   momentum          m       m = momentum m + g;  w -= lr m
//   Nesterov          m       m = momentum m + g;  w -= lr (g + momentum m)        (Sutskever et al., ICML 2013,
//                             in the form that evaluates the gradient at w)
//   Adagrad           a       a += g^2;  w -= lr g / (sqrt(a) + epsilon)           (Duchi et al., JMLR 2011)
//   row-wise Adagrad  a (1)   a += mean(g^2) over the row;  w -= lr g / (sqrt(a) + epsilon)
//   RMSProp           v       v = rho v + (1 - rho) g^2;  w -= lr g / (sqrt(v) + epsilon)
//   Adam              m v t   t += 1;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//                             w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//                             (Kingma, Ba, ICLR 2015). t is one float: the steps of *this row*, exact to 2^24,
//                             where it stays (both corrections are 1 by then)
//   AdamW             m v t   w -= lr weight_decay w, then Adam (Loshchilov, Hutter, ICLR 2019); a row decays
//                             only in the steps that push it
//   FTRL-proximal     z n     s = (sqrt(n + g^2) - sqrt(n)) / lr;  z += g - s w;  n += g^2;
//                             w = 0 if |z| <= ftrl_l1, else
//                             w = (sign(z) ftrl_l1 - z) / ((ftrl_beta + sqrt(n)) / lr + ftrl_l2)
//                             (McMahan et al., KDD 2013, Algorithm 1). Meant for rows that start at zero: the
//                             first step forgets most of a random initial value. A step with lr = 0 does nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// The rate at `clock`. With c = clock and W = warmup_clocks:
//   c < W: rate * (c + 1) / W, so that the first step already moves; then, with d = c - W,
//   constant: rate;  step: rate * factor^(d / period);
//   cosine: rate * (factor + (1 - factor) * (1 + cos(pi min(d / period, 1))) / 2).
// A period of 0 means constant. Computed in double, rounded once.
float LearningRate(const OptimizerSpec& spec, Clock clock);

// The state of a row that has taken no step: SlotFloats(spec.kind, dim) floats, all written. Zero but for
// `initial_accumulator` (Adagrad, row-wise Adagrad, FTRL's n). `slots` may be null for SGD.
void InitSlots(const OptimizerSpec& spec, std::uint32_t dim, float* slots);

// One step of n rows, in order: row i has values[i] (dim floats), slots[i] (SlotFloats floats; `slots` may be
// null for SGD) and the gradient gradients[i * dim ... + dim), which is not changed. A row that is named twice
// takes two steps. The rows must not overlap the gradients. dim is 1..limits::kRowDimMax.
void ApplyOptimizer(const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n, float* const* values,
                    float* const* slots, const float* gradients);

// On a GPU. `values`, `slots` and what they point to are device memory; no row may be named twice.
void ApplyOptimizer(Stream& stream, const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n,
                    float* const* values, float* const* slots, const float* gradients);

}  // namespace tarn::kernels

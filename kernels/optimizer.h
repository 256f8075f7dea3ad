// Applies update rules: how a gradient changes a row's values and slots. kernels/rules/NAME.cc defines each rule;
// core/table/update_rule.h defines what a rule is. Rules run on the shards, which store the state, and on workers for
// the local steps of the job file's section [local].
//
//   const Optimizer optimizer(spec);                              // once per table
//   std::vector<float> slots(optimizer.slot_floats(dim));
//   optimizer.InitSlots(dim, slots.data());
//   optimizer.Apply({.clock = clock, .rate = LearningRate(spec, clock)}, rows);   // n rows, in order
//
// No function keeps state between calls. Any thread may call them on disjoint rows and, for rules with
// partition_floats, disjoint partition_state. The bits of the result are the same on every x86-64, for every batch size
// and order of distinct rows, because the code uses only IEEE + - * / and sqrt, no contraction, and reductions of one
// fixed shape (kernels/elementwise.h). This holds among threads that treat subnormals alike; shards treat them as zero
// (kernels/subnormals.h).
//
// With w the values and g the gradient, g is first changed as follows; then the rule uses it:
//   g += l2 * w                                     if l2 > 0
//   g  = min(max(g, -clip_value), clip_value)       if clip_value > 0
//   g *= clip_norm / |g|                            if clip_norm > 0 and |g| > clip_norm (2-norm of the row)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/limits.h"
#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// The rate at `clock`. With c = clock and W = warmup_clocks:
//   c < W: rate * (c + 1) / W, so that the first step is not 0; then, with d = c - W,
//   constant: rate;  step: rate * factor^(d / period);
//   cosine: rate * (factor + (1 - factor) * (1 + cos(pi min(d / period, 1))) / 2).
// A period of 0 means constant. Computed in double, rounded once.
float LearningRate(const OptimizerSpec& spec, Clock clock);

// n rows and their gradients: row i has values[i] (dim floats), slots[i] (slot_floats(dim) floats; `slots` may be null
// for a rule without slots) and the dim floats of its gradient from gradients[i * dim] on, which are not changed. A row
// that occurs twice takes two steps. The rows must not overlap the gradients. dim is 1..limits::kRowDimMax.
struct RowsToStep {
  std::uint32_t dim = 0;
  std::size_t n = 0;
  float* const* values = nullptr;
  float* const* slots = nullptr;
  const float* gradients = nullptr;
  const float* pulled = nullptr;          // n x dim, for rules with needs_pulled
  std::span<float> partition_state = {};  // for rules with partition_floats
  bool begins_section = false;            // RuleCall::begins_section
};

// A table's rule with its options.
class Optimizer {
 public:
  // `spec` is valid (core/table/table_spec.h).
  explicit Optimizer(const OptimizerSpec& spec);

  const UpdateRule& rule() const { return *rule_; }
  std::uint32_t slot_floats(std::uint32_t dim) const { return SlotFloats(*rule_, dim); }
  // Writes the complete state of a row that has taken no step.
  void InitSlots(std::uint32_t dim, float* slots) const;
  // One step of each row, in order. Changes nothing if the rule divides by the rate (divides_by_rate) and that is 0.
  void Apply(const RuleContext& context, const RowsToStep& rows) const;
  // Whether the rule discards gradients of this context.
  bool Discards(const RuleContext& context) const {
    return rule_->discards != nullptr && rule_->discards(context, {options_.data(), rule_->options.size()});
  }

 private:
  const UpdateRule* rule_;
  std::array<float, limits::kRuleOptionsMax> options_;
  float l2_, clip_value_, clip_norm_;
};

// For tests and benchmarks: InitSlots and Apply of Optimizer(spec). Apply's context has only the clock and its rate.
void InitSlots(const OptimizerSpec& spec, std::uint32_t dim, float* slots);
void ApplyOptimizer(const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n, float* const* values,
                    float* const* slots, const float* gradients);

// Whether this rule is implemented on a GPU.
bool HasCudaRule(const OptimizerSpec& spec);
// On a GPU; requires HasCudaRule. `values`, `slots` and the rows they point to are device memory; no row may occur
// twice.
void ApplyOptimizer(Stream& stream, const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n,
                    float* const* values, float* const* slots, const float* gradients);

}  // namespace tarn::kernels

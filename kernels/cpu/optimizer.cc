#include "kernels/optimizer.h"

#include <algorithm>

#include "kernels/math.h"

namespace tarn::kernels {

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
  if (past >= period) return float(rate * factor);  // exactly the floor: a floor of 0 stops all updates
  const double share = double(past) / double(period);
  return float(rate * (factor + (1.0 - factor) * (1.0 + math::CosPi(share)) / 2.0));
}

Optimizer::Optimizer(const OptimizerSpec& spec)
    : rule_(FindUpdateRule(spec.kind)), l2_(spec.l2), clip_value_(spec.clip_value), clip_norm_(spec.clip_norm) {
  TARN_CHECK(rule_ != nullptr, "a spec is validated first");
  TARN_CHECK(rule_->options.size() <= options_.size(), "a rule has at most limits::kRuleOptionsMax options");
  for (std::size_t i = 0; i < rule_->options.size(); ++i) options_[i] = OptionOf(spec, rule_->options[i].name);
}

void Optimizer::InitSlots(std::uint32_t dim, float* slots) const {
  for (const RuleSlot& slot : rule_->slots) {
    const std::uint32_t floats = slot.size == SlotSize::kValue ? dim : 1;
    std::fill_n(slots, floats, slot.starts_as.empty() ? 0.0f : options_[rule_->IndexOf(slot.starts_as)]);
    slots += floats;
  }
}

void Optimizer::Apply(const RuleContext& context, const RowsToStep& rows) const {
  TARN_CHECK(rows.dim >= 1 && rows.dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  TARN_CHECK(!rule_->needs_pulled || rows.pulled != nullptr, "the rule needs the pulled rows");
  TARN_CHECK(rows.partition_state.size() >= rule_->partition_floats, "the rule needs its state of the partition");
  if (rule_->divides_by_rate && context.rate == 0.0f) return;
  rule_->apply({.options = {options_.data(), rule_->options.size()},
                .context = context,
                .l2 = l2_,
                .clip_value = clip_value_,
                .clip_norm = clip_norm_,
                .dim = rows.dim,
                .n = rows.n,
                .values = rows.values,
                .slots = rows.slots,
                .slot_floats = slot_floats(rows.dim),
                .gradients = rows.gradients,
                .pulled = rows.pulled,
                .partition_state = rows.partition_state,
                .begins_section = rows.begins_section});
}

void InitSlots(const OptimizerSpec& spec, std::uint32_t dim, float* slots) { Optimizer(spec).InitSlots(dim, slots); }

void ApplyOptimizer(const OptimizerSpec& spec, Clock push_clock, std::uint32_t dim, std::size_t n, float* const* values,
                    float* const* slots, const float* gradients) {
  Optimizer(spec).Apply({.clock = push_clock, .rate = LearningRate(spec, push_clock)},
                        {.dim = dim, .n = n, .values = values, .slots = slots, .gradients = gradients});
}

}  // namespace tarn::kernels

#include "core/table/update_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/names.h"

namespace tarn {

std::string Describe(Range range) {
  return fmt::format("a number {} {} and {} {}", range.without_low ? ">" : ">=", range.low,
                     range.without_high ? "<" : "<=", range.high);
}

const UpdateRule* FindUpdateRule(std::string_view name) {
  for (const UpdateRule* rule : UpdateRules())
    if (rule->name == name) return rule;
  return nullptr;
}

const RuleOption* FindRuleOption(std::string_view name) {
  for (const UpdateRule* rule : UpdateRules())
    if (const std::size_t i = rule->IndexOf(name); i < rule->options.size()) return &rule->options[i];
  return nullptr;
}

std::vector<const RuleOption*> RuleOptions() {
  std::vector<const RuleOption*> all;
  for (const UpdateRule* rule : UpdateRules())
    for (const RuleOption& option : rule->options)
      if (FindRuleOption(option.name) == &option) all.push_back(&option);
  return all;
}

std::uint32_t SlotFloats(const UpdateRule& rule, std::uint32_t dim) {
  std::uint32_t floats = 0;
  for (const RuleSlot& slot : rule.slots) floats += slot.size == SlotSize::kValue ? dim : 1;
  return floats;
}

std::uint32_t SlotFloats(std::string_view rule, std::uint32_t dim) {
  const UpdateRule* known = FindUpdateRule(rule);
  return known == nullptr ? 0 : SlotFloats(*known, dim);
}

std::string_view Name(const RuleName& v) {
  const UpdateRule* rule = FindUpdateRule(v.value);
  return rule == nullptr ? "unknown" : rule->name;
}

Status ParseName(std::string_view name, RuleName& out) {
  if (FindUpdateRule(name) != nullptr) {
    out = name;
    return {};
  }
  std::vector<std::string_view> known;
  for (const UpdateRule* rule : UpdateRules()) known.push_back(rule->name);
  return UnknownName("optimizer", name, known);
}

}  // namespace tarn

// An update rule computes how pushed gradients change the rows of a server. A rule is one file, kernels/rules/NAME.cc,
// with a declaration (an UpdateRule) and the computation, and its name in the list of kernels/rules/CMakeLists.txt. Job
// files and their errors, documentation, row layouts, messages, logs, checkpoints and tools use the declaration.
// kernels/README.md describes how to add a rule.
//
//   const UpdateRule* rule = FindUpdateRule("adam");
//   for (const RuleOption& option : rule->options) ...
//
// All data is constant: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace tarn {

// An interval; either end may be excluded. Never contains NaN.
struct Range {
  double low = 0;
  double high = 0;
  bool without_low = false;
  bool without_high = false;

  constexpr bool Holds(double x) const {
    return (without_low ? x > low : x >= low) && (without_high ? x < high : x <= high);
  }
};
// "a number >= 0 and < 1".
std::string Describe(Range range);

// Common ranges.
inline constexpr Range kNotNegative{0, 1e6};
inline constexpr Range kPositive{0, 1e6, true};
inline constexpr Range kDecay{0, 1, false, true};

// A numeric option: a key of the job file's [optimizer] sections, stored as a float. Several rules may have the same
// option, such as "epsilon". It must then have the same default in all of them, because [optimizer.ROLE] inherits its
// value from [optimizer] even if the two sections have different rules.
struct RuleOption {
  std::string_view name;  // at most limits::kRuleNameBytesMax bytes, like that of a rule
  float by_default = 0;
  Range range;
  std::string_view meaning;  // for docs/job-file.md
};

// Optimizer state of a row: an array with one float per value, or one float per row.
enum class SlotSize : std::uint8_t { kValue, kRow };
struct RuleSlot {
  std::string_view name;
  SlotSize size = SlotSize::kValue;
  std::string_view starts_as = {};  // the option with the initial value; empty: 0
};

// Origin and time of pushed gradients.
struct RuleContext {
  Clock clock;                  // of the push, or the closing clock
  float rate = 0;               // the learning rate at that clock
  std::uint64_t staleness = 0;  // staleness of the gradients' rows when they were pulled, in clocks
  std::uint64_t delay = 0;      // gradient delay: sections applied to the partition since the rows were pulled
  WorkerRank worker;            // kNoWorker if the gradients are a sum over workers
};
inline constexpr WorkerRank kNoWorker{0xffffffff};

// One step of n rows, in order. For a sum over workers, staleness and delay are the largest of its parts.
struct RuleCall {
  std::span<const float> options;  // in order of declaration
  RuleContext context;
  // Applied to each gradient before its step, in this order; 0: off (kernels/optimizer.h).
  float l2 = 0, clip_value = 0, clip_norm = 0;
  std::uint32_t dim = 0;
  std::size_t n = 0;
  float* const* values = nullptr;  // of each row: dim floats
  float* const* slots = nullptr;   // of each row: slot_floats floats, the arrays consecutively
  std::uint32_t slot_floats = 0;
  const float* gradients = nullptr;  // n x dim
  const float* pulled = nullptr;     // n x dim; for rules with needs_pulled: the rows as pulled by their worker
  std::span<float> partition_state;  // state of the rows' partition and table
  bool begins_section = false;       // for rules with by_section: this is the first call for its section
};

struct UpdateRule {
  std::string_view name;     // the job file's kind
  std::string_view meaning;  // description of a step, for docs/job-file.md, which defines its symbols (w, g, lr, ...)
  std::span<const RuleOption> options = {};
  std::span<const RuleSlot> slots = {};
  // Number of floats of state per partition of a table, initially 0.
  std::uint32_t partition_floats = 0;
  // Pushes include the rows as their worker pulled them. Not allowed with aggregated tables or codecs that keep
  // residuals.
  bool needs_pulled = false;
  // Each call has rows of only one section, for rules that read the staleness or the delay, or have partition_floats.
  // Otherwise a call may have several sections of a push, or several of a clock, and the delay of one of them.
  bool by_section = false;
  // The rule divides by the learning rate: a rate of 0 is rejected, and a clock whose scheduled rate is 0 changes
  // nothing.
  bool divides_by_rate = false;
  void (*apply)(const RuleCall& call) = nullptr;
  // Whether the rule ignores gradients with this context, for counters; only for rules with by_section. Null: it
  // ignores none.
  bool (*discards)(const RuleContext& context, std::span<const float> options) = nullptr;

  // Index of an option by name; options.size() if there is none.
  constexpr std::size_t IndexOf(std::string_view option) const {
    std::size_t i = 0;
    while (i < options.size() && options[i].name != option) ++i;
    return i;
  }
  constexpr bool Has(std::string_view option) const { return IndexOf(option) != options.size(); }
};

// All rules of this program, in the order of the list in kernels/rules.
std::span<const UpdateRule* const> UpdateRules();
// Finds a rule by name; null: unknown.
const UpdateRule* FindUpdateRule(std::string_view name);

// The option with this name of the first rule that has it; null: no rule has it.
const RuleOption* FindRuleOption(std::string_view name);
// The first option of each name, in the order of the rules.
std::vector<const RuleOption*> RuleOptions();

// Floats of all slots of a row of `dim` values; 0 for an unknown rule.
std::uint32_t SlotFloats(std::string_view rule, std::uint32_t dim);
std::uint32_t SlotFloats(const UpdateRule& rule, std::uint32_t dim);

// The name of an update rule, known or not. A plain value, like an enumerator.
struct RuleName {
  RuleName(std::string_view name) : value(name) {}        // NOLINT: converts implicitly
  RuleName(const char* name) : value(name) {}             // NOLINT
  RuleName(std::string name) : value(std::move(name)) {}  // NOLINT
  operator std::string_view() const { return value; }     // NOLINT
  friend bool operator==(const RuleName&, const RuleName&) = default;

  std::string value;
};
// Like Name and ParseName of core/table/table_spec.h.
std::string_view Name(const RuleName& v);
Status ParseName(std::string_view name, RuleName& out);

}  // namespace tarn

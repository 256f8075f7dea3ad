// What an update rule is: how a server changes rows by pushed gradients. A rule is one file, kernels/rules/NAME.cc,
// which declares it (an UpdateRule) and computes it, and one word in the list of kernels/rules/CMakeLists.txt. Job
// files, their errors and their documentation, the layout of rows, messages, logs, checkpoints and tools follow from
// the declaration. kernels/README.md says how to add one.
//
//   const UpdateRule* rule = FindUpdateRule("adam");
//   for (const RuleOption& option : rule->options) ...
//
// All of it is constant: any thread.
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

// An interval; either end may be left out of it. Never holds NaN.
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

// Ranges that many options have.
inline constexpr Range kNotNegative{0, 1e6};
inline constexpr Range kPositive{0, 1e6, true};
inline constexpr Range kDecay{0, 1, false, true};

// A number that the user chooses: a key of the job file's [optimizer] sections, a float everywhere else. Rules may
// share a name, such as "epsilon": a section that inherits takes the value over, whatever its own rule is.
struct RuleOption {
  std::string_view name;  // at most limits::kRuleNameBytesMax bytes, as the rule's
  float by_default = 0;
  Range range;
  std::string_view meaning;  // for docs/job-file.md
};

// An array of floats that a row keeps beside its values: one for each value, or one for the row.
enum class SlotSize : std::uint8_t { kValue, kRow };
struct RuleSlot {
  std::string_view name;
  SlotSize size = SlotSize::kValue;
  std::string_view starts_as = {};  // the option that its floats begin as; empty: 0
};

// Where pushed gradients come from, and when.
struct RuleContext {
  Clock clock;                  // of the push, or of the clock that closes
  float rate = 0;               // the learning rate at that clock
  std::uint64_t staleness = 0;  // clocks that the gradients' rows were behind when they were pulled
  std::uint64_t delay = 0;      // gradient delay: sections applied to the partition since their rows were pulled
  WorkerRank worker;            // kNoWorker where the gradients are a sum over workers
};
inline constexpr WorkerRank kNoWorker{0xffffffff};

// One step of n rows, in order. Of a sum over workers staleness and delay are the largest of its parts.
struct RuleCall {
  std::span<const float> options;  // in the order of the declaration
  RuleContext context;
  // Done to each gradient before its step, in this order; 0: off (kernels/optimizer.h).
  float l2 = 0, clip_value = 0, clip_norm = 0;
  std::uint32_t dim = 0;
  std::size_t n = 0;
  float* const* values = nullptr;  // of each row: dim floats
  float* const* slots = nullptr;   // of each row: slot_floats floats, the arrays one behind the other
  std::uint32_t slot_floats = 0;
  const float* gradients = nullptr;  // n x dim
  const float* pulled = nullptr;     // n x dim, of rules with needs_pulled: the rows as their worker had pulled them
  std::span<float> partition_state;  // of the rows' partition and table
};

struct UpdateRule {
  std::string_view name;     // the job file's kind
  std::string_view meaning;  // what a step does, for docs/job-file.md
  std::span<const RuleOption> options = {};
  std::span<const RuleSlot> slots = {};
  // Floats that each partition of a table keeps, 0 at first.
  std::uint32_t partition_floats = 0;
  // Pushes bring the rows along as their worker had pulled them. Refused for aggregated tables and for topk.
  bool needs_pulled = false;
  // Each call is of rows of one section: the rule reads the delay, or has partition_floats. Otherwise a call may be of
  // several sections of a push, and its delay is that of one of them.
  bool by_section = false;
  // The rule divides by the learning rate: 0 is refused, and a clock at which the schedule makes it 0 changes nothing.
  bool divides_by_rate = false;
  void (*apply)(const RuleCall& call) = nullptr;

  // Where the option of that name is among `options`; options.size(): there is none.
  constexpr std::size_t IndexOf(std::string_view option) const {
    std::size_t i = 0;
    while (i < options.size() && options[i].name != option) ++i;
    return i;
  }
  constexpr bool Has(std::string_view option) const { return IndexOf(option) != options.size(); }
};

// All rules of this program, in the order of their list, which is linked in: kernels/rules.
std::span<const UpdateRule* const> UpdateRules();
// Null: there is none of that name.
const UpdateRule* FindUpdateRule(std::string_view name);

// The option of that name of the first rule that has one; null: none has.
const RuleOption* FindRuleOption(std::string_view name);
// The first option of each name, in the order of the rules.
std::vector<const RuleOption*> RuleOptions();

// Floats of all slots of a row of `dim` values; 0 for an unknown rule.
std::uint32_t SlotFloats(std::string_view rule, std::uint32_t dim);
std::uint32_t SlotFloats(const UpdateRule& rule, std::uint32_t dim);

// The name of an update rule, which need not be known: a value, as an enumerator is.
struct RuleName {
  RuleName(std::string_view name) : value(name) {}        // NOLINT: a name is one
  RuleName(const char* name) : value(name) {}             // NOLINT
  RuleName(std::string name) : value(std::move(name)) {}  // NOLINT
  operator std::string_view() const { return value; }     // NOLINT
  friend bool operator==(const RuleName&, const RuleName&) = default;

  std::string value;
};
// As Name and ParseName of core/table/table_spec.h.
std::string_view Name(const RuleName& v);
Status ParseName(std::string_view name, RuleName& out);

}  // namespace tarn

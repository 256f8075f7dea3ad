#include "core/job/optimizer_section.h"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <utility>

#include "core/job/job_inherits.h"
#include "core/job/key_finder.h"
#include "core/table/optimizer_fields.h"

namespace tarn {
namespace {

Status CheckOptimizer(const SectionReader& in, const OptimizerSpec& spec) {
  if (Status fits = Validate(spec); !fits)
    return in.Refusal({"schedule", "kind", "learning_rate"}, fits.error().message);
  return {};
}

// Options of other rules that the section sets.
NamedOptions ReadOtherOptions(SectionReader& in, const OptimizerSpec& spec) {
  NamedOptions others;
  const UpdateRule* rule = FindUpdateRule(spec.kind);
  for (const RuleOption* option : RuleOptions()) {
    if (rule != nullptr && rule->Has(option->name)) continue;
    float value = option->by_default;
    in.Number(option->name, value, option->range);
    if (in.Has(option->name)) others[std::string(option->name)] = value;
  }
  return others;
}

// Whether an option without effect gets a note: only if it differs from its default, because a job that an older
// version has written may set every option of every rule.
bool IsNotable(std::string_view option, float value) { return value != FindRuleOption(option)->by_default; }

std::string NamesOf(const UpdateRule& rule) {
  std::vector<std::string_view> names;
  for (const RuleOption& option : rule.options) names.push_back(option.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

Status ReadOptimizerRole(SectionReader in, const OptimizerSpec& above, OptimizerSpec& out,
                         std::set<std::string>* explicit_keys, Notes* notes) {
  RuleName kind = above.kind;
  in.Name("kind", kind);
  out = InheritedOptimizer(above, kind);
  KeyFinder finder(in, explicit_keys);
  VisitOptimizer(finder, out);
  VisitOptimizer(in, out);
  const NamedOptions others = ReadOtherOptions(in, out);
  TARN_RETURN_IF_ERROR(in.Finish());
  for (const auto& [name, value] : others)
    if (IsNotable(name, value))
      notes->push_back(in.Note(name, fmt::format("without effect: \"{}\" does not have it; its options: {}",
                                                 std::string_view(kind), NamesOf(*FindUpdateRule(kind)))));
  return CheckOptimizer(in, out);
}

// Ends the section with an error if it sets options of other rules.
Status RefuseOthers(SectionReader& in, const OptimizerSpec& spec, const NamedOptions& others) {
  TARN_RETURN_IF_ERROR(in.Finish());
  if (others.empty()) return {};
  const std::string& first = others.begin()->first;
  return in.Refusal({first}, fmt::format("\"{}\" does not have it; its options: {}", std::string_view(spec.kind),
                                         NamesOf(*FindUpdateRule(spec.kind))));
}

// An override of [optimizer] affects only roles that do not set the key. Adds a note that names the roles that set it.
// Returns an error if all of them do, because the override then has no effect.
Status CheckReach(const SectionReader& in, const ExplicitKeys& explicit_keys, Notes* notes) {
  std::set<std::string> keys;
  KeyFinder finder(in, &keys);
  VisitOptimizer(finder, explicit_keys.optimizer);
  for (const auto& [name, value] : explicit_keys.optimizer.options) keys.insert(name);
  for (const std::string& key : keys) {
    if (!in.IsOverride(key)) continue;
    std::vector<std::string> own;
    for (const char* role : {"optimizer.linear", "optimizer.embedding", "optimizer.dense"})
      if (explicit_keys.Has(role, key)) own.push_back(fmt::format("[{}]", role));
    if (own.empty()) continue;
    const std::string who = fmt::format("{}", fmt::join(own, ", "));
    if (own.size() == 3)
      return in.Refusal({key}, fmt::format("without effect: {} set it themselves; override theirs, such as "
                                           "optimizer.dense.{}",
                                           who, key));
    notes->push_back(
        in.Note(key, fmt::format("without effect on {}, which set{} it", who, own.size() == 1 ? "s" : "")));
  }
  return {};
}

// Notes options of [optimizer] that no role's rule has.
void NoteUnusedOptions(const SectionReader& in, const OptimizerSection& roles, const NamedOptions& given,
                       Notes* notes) {
  for (const auto& [name, value] : given) {
    const auto has = [&](const OptimizerSpec& role) { return FindUpdateRule(role.kind)->Has(name); };
    if (has(roles.linear) || has(roles.embedding) || has(roles.dense) || !IsNotable(name, value)) continue;
    notes->push_back(in.Note(name, "without effect: no table's rule has this option"));
  }
}

}  // namespace

Status ReadOptimizer(SectionReader in, OptimizerSection& out, ExplicitKeys& explicit_keys, Notes* notes) {
  OptimizerSpec& base = explicit_keys.optimizer;
  VisitOptimizer(in, base);
  const NamedOptions others = ReadOtherOptions(in, base);
  const std::pair<const char*, OptimizerSpec*> roles[] = {
      {"linear", &out.linear}, {"embedding", &out.embedding}, {"dense", &out.dense}};
  const ConfigNode* nodes[std::size(roles)];
  for (std::size_t i = 0; i < std::size(roles); ++i) nodes[i] = in.Section(roles[i].first);
  TARN_RETURN_IF_ERROR(in.Finish());
  TARN_RETURN_IF_ERROR(CheckOptimizer(in, base));
  base.options.insert(others.begin(), others.end());
  for (std::size_t i = 0; i < std::size(roles); ++i) {
    const std::string section = fmt::format("optimizer.{}", roles[i].first);
    TARN_RETURN_IF_ERROR(
        ReadOptimizerRole({nodes[i], section, {}}, base, *roles[i].second, &explicit_keys.by_section[section], notes));
  }
  NoteUnusedOptions(in, out, others, notes);
  return CheckReach(in, explicit_keys, notes);
}

namespace {

// Whether a rule needs data that only servers have.
bool NeedsServer(const UpdateRule& rule) { return rule.needs_pulled || rule.by_section || rule.partition_floats != 0; }

// Whether a rule computes values from its slots alone. With a worker's slots it would replace what was pulled.
bool ForgetsValues(const UpdateRule& rule) { return rule.name == "ftrl"; }

Status CheckLocal(const SectionReader& in, const LocalSection& local) {
  if (local.method == LocalMethod::kNone && local.steps != 1)
    return in.Refusal(
        {"steps", "method"},
        fmt::format("steps = {} with method = \"none\": expected \"accumulate\", \"delta\" or \"elastic\"",
                    local.steps));
  if (local.method == LocalMethod::kNone && local.from_epoch != 1)
    return in.Refusal(
        {"from_epoch", "method"},
        fmt::format("from_epoch = {} with method = \"none\": there are no local steps; remove it", local.from_epoch));
  const UpdateRule& rule = *FindUpdateRule(local.optimizer.kind);
  if (ForgetsValues(rule))
    return in.Refusal({"kind"},
                      fmt::format("\"{}\" computes values from a worker's own past and would replace those that "
                                  "were pulled: expected a rule such as \"sgd\", \"momentum\" or \"adagrad\"",
                                  rule.name));
  if (NeedsServer(rule))
    return in.Refusal({"kind"}, fmt::format("\"{}\" needs the delay or the state of a server: expected a rule such as "
                                            "\"sgd\", \"momentum\", \"adagrad\" or \"adamw\"",
                                            std::string_view(local.optimizer.kind)));
  return CheckOptimizer(in, local.optimizer);
}

}  // namespace

Status ReadLocal(SectionReader in, LocalSection& out) {
  VisitLocal(in, out);
  const NamedOptions others = ReadOtherOptions(in, out.optimizer);
  TARN_RETURN_IF_ERROR(RefuseOthers(in, out.optimizer, others));
  return CheckLocal(in, out);
}

Status ReadTableOptimizer(SectionReader in, OptimizerSpec& out) {
  VisitOptimizer(in, out);
  return RefuseOthers(in, out, ReadOtherOptions(in, out));
}

}  // namespace tarn

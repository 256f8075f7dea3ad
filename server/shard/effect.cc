#include "server/shard/effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/hash.h"

namespace tarn::server {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"pull", "push", "tick"};

template <typename Number>
bool TakeNumber(std::string_view* text, Number* number) {
  if (!text->starts_with(' ')) return false;
  text->remove_prefix(1);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(std::size_t(end - text->data()));
  return true;
}

bool HasSections(const Push& push) {
  return std::ranges::any_of(push.tables, [](const PushPart& table) { return !table.keys.sections.empty(); });
}

}  // namespace

Effect EffectOf(WorkerRank worker, const Pull& pull) {
  std::uint64_t sections = 0;
  for (const PullPart& table : pull.tables) {
    if (&table != &pull.tables.front()) sections = HashCombine(sections, table.table.value);
    for (const Section& section : table.keys.sections) {
      sections = HashCombine(sections, section.partition.value);
      sections = HashCombine(sections, section.count);
      sections = HashCombine(sections, section.sequence.value);
    }
  }
  return {Effect::Kind::kPull, worker, pull.tables.front().table.value, pull.clock.value, sections};
}

Effect EffectOf(WorkerRank worker, const Push& push, std::size_t first_new) {
  auto table = push.tables.begin();
  for (; first_new >= table->keys.sections.size(); ++table) first_new -= table->keys.sections.size();
  const Section& section = table->keys.sections[first_new];
  return {Effect::Kind::kPush, worker, table->table.value, section.sequence.value, section.partition.value};
}

Effect EffectOf(WorkerRank worker, const Tick& tick) { return {Effect::Kind::kTick, worker, 0, tick.clock.value, 0}; }

std::optional<Effect> EffectOf(const Message& message) {
  const WorkerRank worker(message.sender.rank);
  if (const auto* pull = std::get_if<Pull>(&message.body)) return EffectOf(worker, *pull);
  if (const auto* tick = std::get_if<Tick>(&message.body)) return EffectOf(worker, *tick);
  if (const auto* push = std::get_if<Push>(&message.body))
    if (HasSections(*push)) return EffectOf(worker, *push, 0);
  return std::nullopt;
}

std::string ToLine(const Effect& effect) {
  return fmt::format("{} {} {} {} {}", kKinds[std::size_t(effect.kind)], effect.worker.value, effect.table, effect.at,
                     effect.sections);
}

std::optional<Effect> ParseEffect(std::string_view line) {
  Effect effect;
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    std::string_view rest = line;
    if (!rest.starts_with(kKinds[kind])) continue;
    rest.remove_prefix(kKinds[kind].size());
    effect.kind = Effect::Kind(kind);
    if (TakeNumber(&rest, &effect.worker.value) && TakeNumber(&rest, &effect.table) && TakeNumber(&rest, &effect.at) &&
        TakeNumber(&rest, &effect.sections) && rest.empty())
      return effect;
  }
  return std::nullopt;
}

}  // namespace tarn::server

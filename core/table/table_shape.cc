#include "core/table/table_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/byte_size.h"
#include "core/table/compression_fields.h"
#include "core/table/life_fields.h"
#include "core/table/optimizer_fields.h"
#include "core/table/update_rule.h"

namespace tarn {

std::string Describe(const InitializerSpec& spec) {
  switch (spec.kind) {
    case InitializerKind::kZero: return "zero";
    case InitializerKind::kConstant: return fmt::format("constant {:g}", spec.a);
    case InitializerKind::kUniform:
    case InitializerKind::kNormal: return fmt::format("{}({:g}, {:g})", Name(spec.kind), spec.a, spec.b);
  }
  return "unknown";
}

namespace {

std::string Describe(const ConsistencySpec& spec) {
  if (spec.mode == ConsistencyMode::kSsp) {
    const std::string most =
        spec.staleness_range == 0 ? "" : fmt::format(" to {}", spec.staleness + spec.staleness_range);
    return fmt::format("ssp({}{}), {}", spec.staleness, most, Name(spec.apply));
  }
  const std::string backups = spec.backup_workers == 0 ? "" : fmt::format(", {} backup workers", spec.backup_workers);
  return fmt::format("{}, {}{}", Name(spec.mode), Name(spec.apply), backups);
}

std::string_view Describe(const LifeSpec& spec) {
  if (!spec.on) return "none";
  return spec.expire_seconds != 0 ? "in seconds" : "in clocks";
}

// Collects each setting with its value as text.
struct Settings {
  std::vector<std::pair<std::string, std::string>> all;
  void Boolean(const char*, bool) {}  // part of the shape
  void Number(std::string_view key, double value, Range) { all.emplace_back(key, fmt::format("{:g}", value)); }
  template <typename Kind>
  void Name(const char* key, const Kind& value) {
    all.emplace_back(key, std::string(tarn::Name(value)));
  }
  void Integer(const char* key, const std::uint64_t& value, std::uint64_t, std::uint64_t) {
    all.emplace_back(key, fmt::format("{}", value));
  }
  void Bytes(const char* key, std::uint64_t value) { all.emplace_back(key, ToByteSize(value)); }
};

bool KeepsState(const OptimizerSpec& spec) {
  const UpdateRule* rule = FindUpdateRule(spec.kind);
  return rule == nullptr || !rule->slots.empty() || rule->partition_floats != 0;
}

Settings SettingsOf(const TableSpec& spec) {
  Settings settings;
  VisitOptimizer(settings, spec.optimizer);
  settings.all.emplace_back("consistency", Describe(spec.consistency));
  settings.Name("pull_codec", spec.pull_codec);
  settings.Name("push_codec", spec.push_codec);
  settings.Name("pushes", spec.pushes);
  VisitCompression(settings, spec.compression);
  VisitLife(settings, spec.life);
  return settings;
}

}  // namespace

std::string ShapeDifference(const TableSpec& a, std::string_view place_of_a, const TableSpec& b,
                            std::string_view place_of_b) {
  auto differ = [&](std::string_view what, const auto& x, const auto& y) {
    return fmt::format("{} is {} {} and {} {}", what, x, place_of_a, y, place_of_b);
  };
  if (a.kind != b.kind) return differ("kind", Name(a.kind), Name(b.kind));
  if (a.dim != b.dim) return differ("dim", a.dim, b.dim);
  if (a.rows != b.rows) return differ("rows", a.rows, b.rows);
  if (a.optimizer.kind != b.optimizer.kind && (KeepsState(a.optimizer) || KeepsState(b.optimizer)))
    return differ("optimizer", Name(a.optimizer.kind), Name(b.optimizer.kind));
  if (a.initializer != b.initializer) return differ("initializer", Describe(a.initializer), Describe(b.initializer));
  if (a.row_codec != b.row_codec) return differ("row_codec", Name(a.row_codec), Name(b.row_codec));
  if (Describe(a.life) != Describe(b.life)) return differ("life", Describe(a.life), Describe(b.life));
  return {};
}

std::string SettingsChange(const TableSpec& from, const TableSpec& to) {
  const Settings before = SettingsOf(from), after = SettingsOf(to);
  std::string text;
  for (const auto& [key, value] : after.all) {
    const auto was = std::ranges::find(before.all, key, &std::pair<std::string, std::string>::first);
    if (was == before.all.end())  // an option of another rule
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
    else if (value != was->second)
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", key, was->second, value);
  }
  return text;
}

}  // namespace tarn

#include "core/config_tree.h"

#define TOML_EXCEPTIONS 0
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "core/limits.h"
#include "core/names.h"

namespace tarn {
namespace {

constexpr int kDepthMax = 8;  // tables and arrays in each other; a job needs 3

// Where values come from: lines of a file, or an override.
struct Origin {
  std::string name;
  bool has_lines = true;

  std::string Place(const toml::source_region& source) const {
    return has_lines ? fmt::format("{}:{}", name, source.begin.line) : name;
  }
};

std::unexpected<Error> Invalid(std::string_view place, std::string_view reason) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", place, reason));
}

// toml++ quotes the document's bytes in its messages.
std::string Printable(std::string_view text) {
  std::string out(text);
  std::replace_if(out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; },
                  '?');
  return out;
}

Expected<ConfigNode> Convert(const toml::node& from, const Origin& origin, int depth);

Status ConvertTable(const toml::table& from, const Origin& origin, int depth, ConfigNode& to) {
  to.kind = ConfigNode::Kind::kTable;
  for (const auto& [key, value] : from) {
    auto member = Convert(value, origin, depth + 1);
    if (!member) return std::unexpected(member.error());
    to.members.push_back({std::string(key.str()), std::move(*member)});
  }
  return {};
}

Status ConvertArray(const toml::array& from, const Origin& origin, int depth, ConfigNode& to) {
  to.kind = ConfigNode::Kind::kArray;
  for (const toml::node& value : from) {
    auto item = Convert(value, origin, depth + 1);
    if (!item) return std::unexpected(item.error());
    to.items.push_back(std::move(*item));
  }
  return {};
}

Expected<ConfigNode> Convert(const toml::node& from, const Origin& origin, int depth) {
  ConfigNode to;
  to.place = origin.Place(from.source());
  if (depth > kDepthMax) return Invalid(to.place, fmt::format("nested deeper than {}", kDepthMax));
  if (const auto* table = from.as_table()) {
    TARN_RETURN_IF_ERROR(ConvertTable(*table, origin, depth, to));
  } else if (const auto* array = from.as_array()) {
    TARN_RETURN_IF_ERROR(ConvertArray(*array, origin, depth, to));
  } else if (const auto* text = from.as_string()) {
    to.kind = ConfigNode::Kind::kString;
    to.text = text->get();
  } else if (const auto* integer = from.as_integer()) {
    to.kind = ConfigNode::Kind::kInteger;
    to.integer = integer->get();
  } else if (const auto* number = from.as_floating_point()) {
    to.kind = ConfigNode::Kind::kFloat;
    to.number = number->get();
  } else if (const auto* boolean = from.as_boolean()) {
    to.kind = ConfigNode::Kind::kBoolean;
    to.boolean = boolean->get();
  } else {
    to.kind = ConfigNode::Kind::kTime;
  }
  return to;
}

Expected<ConfigNode> Parse(std::string_view text, const Origin& origin) {
  const std::string& name = origin.name;
  if (text.size() > limits::kJobBytesMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("{}: more than {} bytes", name, limits::kJobBytesMax));
  // Each dot may open one more table, and toml++ frees nested tables by recursion.
  if (std::size_t(std::count(text.begin(), text.end(), '.')) > limits::kJobDotsMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("{}: more than {} dots", name, limits::kJobDotsMax));
  const toml::parse_result result = toml::parse(text);
  if (!result)
    return Invalid(origin.Place(result.error().source()), Printable(result.error().description()));
  return Convert(result.table(), origin, 0);
}

void SetMember(ConfigNode& table, std::string key, ConfigNode value) {
  const auto at = std::lower_bound(table.members.begin(), table.members.end(), key,
                                   [](const ConfigMember& m, const std::string& k) { return m.key < k; });
  if (at != table.members.end() && at->key == key)
    at->value = std::move(value);
  else
    table.members.insert(at, {std::move(key), std::move(value)});
}

// Tables are merged member by member; anything else is replaced.
void Merge(ConfigNode& into, ConfigNode from) {
  for (ConfigMember& member : from.members) {
    const auto found = std::find_if(into.members.begin(), into.members.end(),
                                    [&](const ConfigMember& m) { return m.key == member.key; });
    const bool both_tables = found != into.members.end() && found->value.kind == ConfigNode::Kind::kTable &&
                             member.value.kind == ConfigNode::Kind::kTable;
    if (both_tables)
      Merge(found->value, std::move(member.value));
    else
      SetMember(into, std::move(member.key), std::move(member.value));
  }
}

std::string_view Trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Expected<ConfigNode> OverrideValue(std::string_view text, const Origin& origin) {
  auto parsed = Parse(fmt::format("v = {}", text), origin);
  if (parsed) return std::move(parsed->members.front().value);
  if (!text.empty() && std::string_view("\"'[{").find(text.front()) != std::string_view::npos)
    return std::unexpected(parsed.error());
  ConfigNode bare;
  bare.kind = ConfigNode::Kind::kString;
  bare.place = origin.name;
  bare.text = text;
  return bare;
}

}  // namespace

const ConfigNode* ConfigNode::Find(std::string_view key) const {
  for (const ConfigMember& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}

std::string_view KindName(ConfigNode::Kind kind) {
  switch (kind) {
    case ConfigNode::Kind::kTable: return "a table";
    case ConfigNode::Kind::kArray: return "an array";
    case ConfigNode::Kind::kString: return "a string";
    case ConfigNode::Kind::kInteger: return "an integer";
    case ConfigNode::Kind::kFloat: return "a float";
    case ConfigNode::Kind::kBoolean: return "a boolean";
    case ConfigNode::Kind::kTime: return "a date or time";
  }
  return "unknown";
}

Expected<ConfigNode> ParseConfig(std::string_view text, std::string_view origin) {
  return Parse(text, {std::string(origin)});
}

Status ApplyOverride(ConfigNode& root, std::string_view assignment) {
  const Origin origin{"override " + Quoted(assignment), false};
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || assignment.find_first_of("\r\n") != std::string_view::npos)
    return Invalid(origin.name, "expected section.key=value on one line");
  auto value = OverrideValue(Trim(assignment.substr(equals + 1)), origin);
  if (!value) return std::unexpected(value.error());
  auto path = Parse(fmt::format("{} = 0", Trim(assignment.substr(0, equals))), origin);
  if (!path || path->members.size() != 1)
    return Invalid(origin.name, fmt::format("{} is not a key: expected section.key=value",
                                            Quoted(Trim(assignment.substr(0, equals)))));
  ConfigNode* leaf = &*path;
  while (leaf->kind == ConfigNode::Kind::kTable && !leaf->members.empty()) leaf = &leaf->members.front().value;
  *leaf = std::move(*value);
  Merge(root, std::move(*path));
  return {};
}

}  // namespace tarn

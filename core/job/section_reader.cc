#include "core/job/section_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/byte_size.h"
#include "core/job/job_fields.h"
#include "core/job/job_sections.h"
#include "core/limits.h"
#include "core/names.h"

namespace tarn {
namespace {

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool IsName(std::string_view text) {
  if (text.empty() || text.size() > limits::kNameBytesMax || !IsLetterOrDigit(text.front())) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-'; });
}

bool IsPath(std::string_view text) {
  return text.size() <= limits::kPathBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
         });
}

bool IsDevice(std::string_view text) {
  constexpr std::string_view kNumbered = "gpu:";
  constexpr std::size_t kDigitsMax = 3;
  if (text == "cpu" || text == "gpu") return true;
  if (!text.starts_with(kNumbered)) return false;
  const std::string_view digits = text.substr(kNumbered.size());
  return !digits.empty() && digits.size() <= kDigitsMax &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string DescribeRule(TextRule rule) {
  if (rule == TextRule::kDevice) return "\"cpu\", \"gpu\" or the number of a GPU as in \"gpu:1\"";
  if (rule == TextRule::kPath) return fmt::format("at most {} bytes without control characters", limits::kPathBytesMax);
  return fmt::format("1 to {} letters, digits, '.', '_' or '-', a letter or digit first", limits::kNameBytesMax);
}

bool FitsRule(std::string_view text, TextRule rule) {
  switch (rule) {
    case TextRule::kName: return IsName(text);
    case TextRule::kDevice: return IsDevice(text);
    case TextRule::kPath: break;
  }
  return IsPath(text);
}

std::string ShowValue(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kString: return Quoted(node.text);
    case ConfigNode::Kind::kInteger: return fmt::format("{}", node.integer);
    case ConfigNode::Kind::kFloat: return fmt::format("{}", node.number);
    case ConfigNode::Kind::kBoolean: return node.boolean ? "true" : "false";
    default: return std::string(KindName(node.kind));
  }
}

SectionReader::SectionReader(const ConfigNode* node, std::string path, std::string_view origin,
                             std::string_view members)
    : node_(node), path_(std::move(path)), origin_(origin), members_(members) {
  if (node == nullptr) return;
  if (node->kind != ConfigNode::Kind::kTable)
    Fail(node->place, fmt::format("{}: expected a table, [{}], found {}", path_, path_, KindName(node->kind)));
  origin_ = node->place;
}

const ConfigNode* SectionReader::Take(std::string_view key) {
  known_.emplace_back(key);
  return node_ == nullptr || !status_ ? nullptr : node_->Find(key);
}

std::string SectionReader::Dotted(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void SectionReader::Fail(std::string_view place, std::string_view reason) {
  if (status_) status_ = tarn::Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", place, reason));
}

void SectionReader::Refuse(std::string_view key, std::string_view reason) {
  Fail(node_->Find(key)->place, fmt::format("{}: {}", Dotted(key), reason));
}

void SectionReader::OutOfRange(std::string_view key, std::string_view expected) {
  Refuse(key, fmt::format("expected {}, found {}", expected, ShowValue(*node_->Find(key))));
}

void SectionReader::WrongType(const ConfigNode& node, std::string_view dotted, std::string_view expected) {
  const std::string number = node.kind == ConfigNode::Kind::kString ? WithDecimalPoint(node.text) : "";
  Fail(node.place, fmt::format("{}: expected {}, found {}{}", dotted, expected, KindName(node.kind),
                               number.empty() ? "" : "; with a decimal point: " + number));
}

Status SectionReader::Refusal(std::initializer_list<std::string_view> keys, std::string_view reason) const {
  for (std::string_view key : keys)
    if (Has(key))
      return tarn::Fail(ErrorCode::kInvalidArgument,
                        fmt::format("{}: {}: {}", node_->Find(key)->place, Dotted(key), reason));
  return tarn::Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}: {}", origin_, path_, reason));
}

std::string SectionReader::Note(std::string_view key, std::string_view text) const {
  const ConfigNode& node = *node_->Find(key);
  return fmt::format("{}: {} = {}: {}", node.place, Dotted(key), ShowValue(node), text);
}

bool SectionReader::ReadInteger(const ConfigNode* node, std::string_view dotted, std::uint64_t low, std::uint64_t high,
                                std::uint64_t& out) {
  if (node == nullptr) return false;
  if (node->kind != ConfigNode::Kind::kInteger) {
    WrongType(*node, dotted, "an integer");
    return false;
  }
  if (node->integer < 0 || std::uint64_t(node->integer) < low || std::uint64_t(node->integer) > high) {
    Fail(node->place, fmt::format("{}: expected {} to {}, found {}", dotted, low, high, node->integer));
    return false;
  }
  out = std::uint64_t(node->integer);
  return true;
}

void SectionReader::Bytes(std::string_view key, std::uint64_t& out) {
  const ConfigNode* node = Take(key);
  if (node == nullptr) return;
  if (node->kind == ConfigNode::Kind::kInteger) {
    (void)ReadInteger(node, Dotted(key), 0, kJobInt64Max, out);
  } else if (node->kind != ConfigNode::Kind::kString) {
    WrongType(*node, Dotted(key), "a number of bytes or a text such as '8GiB'");
  } else if (const auto bytes = ParseByteSize(node->text); bytes) {
    out = *bytes;
  } else {
    Refuse(key, bytes.error().message);
  }
}

bool SectionReader::ReadNumber(std::string_view key, double& out) {
  const ConfigNode* node = Take(key);
  if (node == nullptr) return false;
  if (node->kind == ConfigNode::Kind::kInteger) {
    out = double(node->integer);
    return true;
  }
  if (node->kind != ConfigNode::Kind::kFloat) {
    WrongType(*node, Dotted(key), "a number");
    return false;
  }
  out = node->number;
  return true;
}

bool SectionReader::ReadText(std::string_view key, std::string& out) {
  const ConfigNode* node = Take(key);
  if (node == nullptr) return false;
  if (node->kind != ConfigNode::Kind::kString) {
    WrongType(*node, Dotted(key), "a string");
    return false;
  }
  out = node->text;
  return true;
}

void SectionReader::Draws(std::string_view key, Distribution& out) {
  const ConfigNode* node = Take(key);
  if (node == nullptr) return;
  const bool text = node->kind == ConfigNode::Kind::kString;
  if (!text && node->kind != ConfigNode::Kind::kInteger && node->kind != ConfigNode::Kind::kFloat)
    return WrongType(*node, Dotted(key), "a number or a distribution such as 'uniform(0.01, 0.02)'");
  const auto parsed = ParseDistribution(text ? node->text : ShowValue(*node));
  if (!parsed) return Refuse(key, parsed.error().message);
  out = *parsed;
}

void SectionReader::Boolean(std::string_view key, bool& out) {
  const ConfigNode* node = Take(key);
  if (node == nullptr) return;
  if (node->kind != ConfigNode::Kind::kBoolean)
    WrongType(*node, Dotted(key), "a boolean (true or false)");
  else
    out = node->boolean;
}

void SectionReader::Text(std::string_view key, std::string& out, TextRule rule) {
  std::string text;
  if (!ReadText(key, text)) return;
  if (!FitsRule(text, rule)) return OutOfRange(key, DescribeRule(rule));
  out = std::move(text);
}

const ConfigNode* SectionReader::TakeArray(std::string_view key, std::string_view expected) {
  const ConfigNode* node = Take(key);
  if (node == nullptr || node->kind == ConfigNode::Kind::kArray) return node;
  WrongType(*node, Dotted(key), expected);
  return nullptr;
}

void SectionReader::Integers(std::string_view key, std::vector<std::uint32_t>& out, std::uint64_t low,
                             std::uint64_t high, std::size_t items_max) {
  const ConfigNode* node = TakeArray(key, "an array of integers");
  if (node == nullptr) return;
  if (node->items.size() > items_max)
    return Refuse(key, fmt::format("expected at most {} items, found {}", items_max, node->items.size()));
  std::vector<std::uint32_t> values;
  for (std::size_t i = 0; i < node->items.size(); ++i) {
    std::uint64_t value = 0;
    if (!ReadInteger(&node->items[i], fmt::format("{}[{}]", Dotted(key), i), low, high, value)) return;
    values.push_back(std::uint32_t(value));
  }
  out = std::move(values);
}

void SectionReader::Bins(std::string_view key, std::vector<BinRule>& out) {
  const ConfigNode* node = TakeArray(key, "an array of strings");
  if (node == nullptr) return;
  std::vector<BinRule> rules;
  for (std::size_t i = 0; i < node->items.size(); ++i) {
    const ConfigNode& item = node->items[i];
    const std::string dotted = fmt::format("{}[{}]", Dotted(key), i);
    if (item.kind != ConfigNode::Kind::kString) return WrongType(item, dotted, "a string");
    auto rule = ParseBinRule(item.text);
    if (!rule) return Fail(item.place, fmt::format("{}: {}", dotted, rule.error().message));
    rules.push_back(*rule);
  }
  if (rules.size() > limits::kColumnsMax)
    return Refuse(key, fmt::format("expected at most {} items, found {}", limits::kColumnsMax, rules.size()));
  out = std::move(rules);
}

Status SectionReader::Finish() {
  if (!status_ || node_ == nullptr) return std::move(status_);
  const std::vector<std::string_view> known(known_.begin(), known_.end());
  for (const ConfigMember& member : node_->members) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    const std::string what =
        path_.empty() ? fmt::format("unknown {}", members_) : fmt::format("{}: unknown key", path_);
    const std::vector<std::string> sections = SectionsWithKey(member.key);
    const std::string_view nearest = NearestWord(member.key, known);
    std::string hint;
    if (!sections.empty())
      hint = fmt::format("it is a key of {}", fmt::join(sections, " and of "));
    else if (IsNear(member.key, nearest))
      hint = fmt::format("the nearest known one is {}", Quoted(nearest));
    else
      hint = fmt::format("expected one of {}", fmt::join(known, ", "));
    Fail(member.value.place, fmt::format("{} {}; {}", what, Quoted(member.key), hint));
    break;
  }
  return std::move(status_);
}

}  // namespace tarn

// A TOML document as a tree. Each value has its place in the text, for error messages. The reader of job files uses it.
// Parsed by toml++, which no header includes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tarn {

struct ConfigMember;

struct ConfigNode {
  enum class Kind : std::uint8_t { kTable, kArray, kString, kInteger, kFloat, kBoolean, kTime };

  Kind kind = Kind::kTable;
  std::string place;                  // "job.toml:12" or "--set 'fleet.workers=4'"
  bool overrides = false;             // from an override
  std::vector<ConfigMember> members;  // kTable, in alphabetical order of the keys
  std::vector<ConfigNode> items;      // kArray
  std::string text;                   // kString
  std::int64_t integer = 0;           // kInteger
  double number = 0;                  // kFloat
  bool boolean = false;               // kBoolean

  // The member with this key; nullptr if there is none, or if this is not a table.
  const ConfigNode* Find(std::string_view key) const;
};

struct ConfigMember {
  std::string key;
  ConfigNode value;
};

// Converts a number with a decimal comma ("0,1") to one with a point ("0.1"); empty for other text.
std::string WithDecimalPoint(std::string_view text);

// "a table", "an integer", ...: for error messages.
std::string_view KindName(ConfigNode::Kind kind);

// Reads a document; `origin` is the file's name in places and errors. kInvalidArgument with place and reason;
// kTooLarge over limits::kJobBytesMax or kJobDotsMax.
Expected<ConfigNode> ParseConfig(std::string_view text, std::string_view origin);

// Sets one value: "section.key=value". The value is TOML. Text that is not valid TOML counts as a string, so that
// quotes can be omitted, unless it begins like a string, array or table. kInvalidArgument or kTooLarge; the message
// begins with "--set 'section.key=value'", and `root` is unchanged.
Status ApplyOverride(ConfigNode& root, std::string_view assignment);

}  // namespace tarn

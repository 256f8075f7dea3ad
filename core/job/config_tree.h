// A TOML document as a plain tree in which every value knows where it was written: what the job file's reader
// walks. Parsing is toml++'s; nothing of it shows here.
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
  bool overrides = false;             // said by an override
  std::vector<ConfigMember> members;  // kTable, in alphabetical order of the keys
  std::vector<ConfigNode> items;      // kArray
  std::string text;                   // kString
  std::int64_t integer = 0;           // kInteger
  double number = 0;                  // kFloat
  bool boolean = false;               // kBoolean

  // The member of that key, or nullptr; nullptr too if this is no table.
  const ConfigNode* Find(std::string_view key) const;
};

struct ConfigMember {
  std::string key;
  ConfigNode value;
};

// "0.1" for "0,1": a number with a decimal comma, written with a point; empty for anything else.
std::string WithDecimalPoint(std::string_view text);

// "a table", "an integer", ...: as error messages say it.
std::string_view KindName(ConfigNode::Kind kind);

// Reads a document; `origin` is the file's name in places and errors. kInvalidArgument with place and reason;
// kTooLarge over limits::kJobBytesMax.
Expected<ConfigNode> ParseConfig(std::string_view text, std::string_view origin);

// Sets one value: "section.key=value". The value is TOML; what is none and does not begin like a string, array or
// table counts as a string, so that quotes can be left out. Errors begin with "--set 'section.key=value'".
Status ApplyOverride(ConfigNode& root, std::string_view assignment);

}  // namespace tarn

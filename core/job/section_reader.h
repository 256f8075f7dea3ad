// Reads one section of a job file with strict types: a visitor for core/job/job_fields.h that fills a job from a
// ConfigNode. After the first error, which it keeps, further calls have no effect.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/job/config_tree.h"
#include "core/job/job.h"
#include "core/job/job_fields.h"

namespace tarn {

class SectionReader {
 public:
  // `node`: the section's table; if it is nullptr, the file does not have the section and nothing is read. `path`: its
  // name ("optimizer.linear"). `origin`: the place in errors about missing keys. For a whole file `path` is empty, and
  // errors about an unknown member call it `members`.
  SectionReader(const ConfigNode* node, std::string path, std::string_view origin,
                std::string_view members = "section");

  template <typename T>
  void Integer(std::string_view key, T& out, std::uint64_t low, std::uint64_t high) {
    std::uint64_t value = 0;
    if (ReadInteger(Take(key), Dotted(key), low, high, value)) out = static_cast<T>(value);
  }

  template <typename T>
  void Number(std::string_view key, T& out, Range range) {
    double value = 0;
    if (!ReadNumber(key, value)) return;
    // Checks the converted value: a number just below 1 may become 1 as a float.
    if (range.Holds(static_cast<double>(static_cast<T>(value))))
      out = static_cast<T>(value);
    else
      OutOfRange(key, Describe(range));
  }

  template <typename E>
  void Name(std::string_view key, E& out) {
    std::string text;
    if (!ReadText(key, text)) return;
    if (Status parsed = ParseName(text, out); !parsed) Refuse(key, parsed.error().message);
  }

  void Bytes(std::string_view key, std::uint64_t& out);
  void Boolean(std::string_view key, bool& out);
  void Text(std::string_view key, std::string& out, TextRule rule);
  void Integers(std::string_view key, std::vector<std::uint32_t>& out, std::uint64_t low, std::uint64_t high,
                std::size_t items_max);
  void Bins(std::string_view key, std::vector<BinRule>& out);
  void Draws(std::string_view key, Distribution& out);

  // The member with this name, for a separate reader; counts as known.
  const ConfigNode* Section(std::string_view key) { return Take(key); }

  bool Has(std::string_view key) const { return node_ != nullptr && node_->Find(key) != nullptr; }
  bool IsOverride(std::string_view key) const { return Has(key) && node_->Find(key)->overrides; }

  // The first error, else an error if there is an unknown key. Call it after all keys are read.
  Status Finish();

  // An error about valid keys that contradict each other. Its place is that of the first of `keys` that the section
  // sets, else that of the section.
  Status Refusal(std::initializer_list<std::string_view> keys, std::string_view reason) const;

  // "PLACE: section.key = VALUE: TEXT", for a key of the section.
  std::string Note(std::string_view key, std::string_view text) const;

 private:
  const ConfigNode* Take(std::string_view key);
  std::string Dotted(std::string_view key) const;
  void Fail(std::string_view place, std::string_view reason);
  void Refuse(std::string_view key, std::string_view reason);
  void OutOfRange(std::string_view key, std::string_view expected);
  void WrongType(const ConfigNode& node, std::string_view dotted, std::string_view expected);
  bool ReadInteger(const ConfigNode* node, std::string_view dotted, std::uint64_t low, std::uint64_t high,
                   std::uint64_t& out);
  bool ReadNumber(std::string_view key, double& out);
  bool ReadText(std::string_view key, std::string& out);
  const ConfigNode* TakeArray(std::string_view key, std::string_view expected);

  const ConfigNode* node_;
  std::string path_;
  std::string origin_;
  std::string members_;
  std::vector<std::string> known_;
  Status status_;
};

bool FitsRule(std::string_view text, TextRule rule);
// The rule in words, for "expected ..." in an error.
std::string DescribeRule(TextRule rule);

// A value in a message: "12", "0.5", "'text'".
std::string ShowValue(const ConfigNode& node);

}  // namespace tarn

// A visitor for core/job/job_fields.h that records the keys that a section sets.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "core/job/section_reader.h"

namespace tarn {

class KeyFinder {
 public:
  KeyFinder(const SectionReader& in, std::set<std::string>* out) : in_(in), out_(out) {}
  void Integer(std::string_view key, std::uint64_t, std::uint64_t, std::uint64_t) { Record(key); }
  void Number(std::string_view key, double, Range) { Record(key); }
  template <typename E>
  void Name(std::string_view key, const E&) {
    Record(key);
  }
  void Bytes(std::string_view key, std::uint64_t) { Record(key); }
  void Boolean(std::string_view key, bool) { Record(key); }

 private:
  void Record(std::string_view key) {
    if (in_.Has(key)) out_->emplace(key);
  }

  const SectionReader& in_;
  std::set<std::string>* out_;
};

}  // namespace tarn

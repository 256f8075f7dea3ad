// Lines of libsvm's (svmlight's) format into batches. See worker/data/dataset.h for the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/job/job.h"
#include "worker/data/batch.h"

namespace tarn::worker {

// Any thread may parse at any time, each into its own batch.
class LibsvmParser {
 public:
  explicit LibsvmParser(const DataSection& section) : classes_(section.classes) {}
  static Status Validate(const DataSection& section);
  static std::string Describe(const DataSection& section);

  // Indices are below this, so that they are exact in a key's 48 bits.
  static constexpr std::uint64_t kIndexEnd = 1ULL << 47;

  std::uint32_t fields() const { return 0; }
  std::uint32_t dense_columns() const { return 0; }
  void Reserve(std::size_t rows, Batch* batch) const;
  // Adds one line, without its line end. False, and the batch as before, if it is malformed.
  bool Parse(std::string_view line, Batch* batch) const;
  // Why Parse refuses the line.
  std::string Explain(std::string_view line) const;

 private:
  // What is wrong with a line, and where; nothing if `what` is null.
  struct Fault {
    const char* what = nullptr;
    std::string_view token;
  };
  // What it added before a fault is the caller's to take back.
  Fault ParseInto(std::string_view line, Batch* batch) const;
  Fault ParseFeature(std::string_view token, Batch* batch) const;
  bool ParseLabel(std::string_view token, float* label) const;

  std::uint32_t classes_;
};

}  // namespace tarn::worker

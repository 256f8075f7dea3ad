// Parses lines of the libsvm (svmlight) format into batches. worker/data/dataset.h describes the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/job/job.h"
#include "worker/data/batch.h"

namespace tarn::worker {

// Several threads may parse at once, each into its own batch.
class LibsvmParser {
 public:
  explicit LibsvmParser(const DataSection& section) : classes_(section.classes) {}
  static Status Validate(const DataSection& section);
  static std::string Describe(const DataSection& section);

  // Indices must be below this, so that they fit into the value of a key (worker/data/keys.h).
  static constexpr std::uint64_t kIndexEnd = 1ULL << 47;

  std::uint32_t fields() const { return 0; }
  std::uint32_t dense_columns() const { return 0; }
  void Reserve(std::size_t rows, Batch* batch) const;
  // Adds one line, given without its line end. If it is malformed, returns false and leaves the batch unchanged.
  bool Parse(std::string_view line, Batch* batch) const;
  // Why the line is malformed.
  std::string Explain(std::string_view line) const;

 private:
  // An error in a line and the token that causes it; no error if `what` is null.
  struct Fault {
    const char* what = nullptr;
    std::string_view token;
  };
  // After an error the caller must remove what was added.
  Fault ParseInto(std::string_view line, Batch* batch) const;
  Fault ParseFeature(std::string_view token, Batch* batch) const;
  bool ParseLabel(std::string_view token, float* label) const;

  std::uint32_t classes_;
};

}  // namespace tarn::worker

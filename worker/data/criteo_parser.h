// Lines of Criteo's format into batches. See worker/data/dataset.h for the format, worker/data/keys.h for the keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "worker/data/batch.h"
#include "worker/data/bins.h"

namespace tarn::worker {

// Any thread may parse at any time, each into its own batch.
class CriteoParser {
 public:
  // The section must have passed Validate.
  explicit CriteoParser(const DataSection& section);
  static Status Validate(const DataSection& section);
  // What a file of this format is, for messages.
  static std::string Describe(const DataSection& section);

  std::uint32_t fields() const { return fields_; }
  std::uint32_t dense_columns() const { return dense_integers_ ? integer_columns_ : 0; }

  // Room for `rows` more rows.
  void Reserve(std::size_t rows, Batch* batch) const;
  // Adds one line, without its line end. False, and the batch as before, if it is malformed.
  bool Parse(std::string_view line, Batch* batch) const;
  // Why Parse refuses the line.
  std::string Explain(std::string_view line) const;

 private:
  bool ParseFields(const char* p, const char* end, Key* keys, float* dense) const;
  bool ParseInteger(const char** p, const char* end, std::uint32_t column, Key** keys, float** dense) const;
  float DenseValue(std::int64_t v) const;

  std::uint32_t integer_columns_, categorical_columns_, fields_;
  bool dense_integers_;
  std::vector<BinRule> rules_;  // one an integer column
  LogBins bins_;
  std::vector<float> log_of_small_;  // log(1 + v) of small v
};

}  // namespace tarn::worker

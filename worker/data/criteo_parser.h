// Parses lines of Criteo's format into batches. See worker/data/dataset.h for the format, worker/data/keys.h for the
// keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "worker/data/batch.h"
#include "worker/data/bins.h"

namespace tarn::worker {

// Several threads may parse at the same time, each into its own batch.
class CriteoParser {
 public:
  // The section must have passed Validate.
  explicit CriteoParser(const DataSection& section);
  static Status Validate(const DataSection& section);
  // Description of the format, for messages.
  static std::string Describe(const DataSection& section);

  std::uint32_t fields() const { return fields_; }
  std::uint32_t dense_columns() const { return dense_integers_ ? integer_columns_ : 0; }

  // Reserves room for `rows` more rows.
  void Reserve(std::size_t rows, Batch* batch) const;
  // Adds one line, without its line end. Returns false and leaves the batch unchanged if the line is malformed.
  bool Parse(std::string_view line, Batch* batch) const;
  // The reason why Parse rejects the line.
  std::string Explain(std::string_view line) const;

 private:
  bool ParseFields(const char* p, const char* end, Key* keys, float* dense) const;
  bool ParseInteger(const char** p, const char* end, std::uint32_t column, Key** keys, float** dense) const;
  float DenseValue(std::int64_t v) const;

  std::uint32_t integer_columns_, categorical_columns_, fields_;
  bool dense_integers_;
  std::vector<BinRule> rules_;  // one per integer column
  LogBins bins_;
  std::vector<float> log_of_small_;  // log(1 + v) by v, for small v; empty without dense_integers
};

}  // namespace tarn::worker

// A whole generated data set on disk: train.tsv, valid.tsv, test.tsv and generate.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/error.h"
#include "tools/generate/generator.h"

namespace tarn::generate {

struct SetOptions {
  std::string profile = "criteo";  // for generate.json; `generator.teacher` decides
  GeneratorOptions generator;      // last_day is set by WriteSet: valid and test are of the training rows' last day
  std::uint64_t train_rows = 1'000'000;
  std::uint64_t valid_rows = 50'000;
  std::uint64_t test_rows = 100'000;
  std::string dir;
  unsigned threads = 1;  // the bytes do not depend on it
};

// Rows of the generator behind each file. They are far apart, so that valid and test stay what they are for any
// number of training rows.
inline constexpr std::uint64_t kValidFirstRow = 1ULL << 40;
inline constexpr std::uint64_t kTestFirstRow = 1ULL << 41;

struct SetResult {
  bool existed = false;  // the same set was there, whole; nothing was written
  std::string report;    // generate.json: parameters; rows, bytes, positive share and best AUC and log-loss a file
};

// Called now and then, on the calling thread, with rows made and rows in all.
using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

// Makes `dir` and writes the set. Files appear under their names when they are whole and generate.json last, so that
// a set is whole if its generate.json is there; files of another set are replaced. A set with the same parameters and
// the recorded sizes is left as it is. kInvalidArgument; kOverloaded if another process writes there; kIo.
Expected<SetResult> WriteSet(const SetOptions& options, const Progress& progress = {});

}  // namespace tarn::generate

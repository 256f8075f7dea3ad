// A whole generated data set on disk: train.tsv, valid.tsv, test.tsv and generate.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/error.h"
#include "tools/generate/generator.h"

namespace tarn::generate {

struct SetOptions {
  std::string profile = "criteo";  // recorded in generate.json; `generator.teacher` determines the labels
  GeneratorOptions generator;      // last_day is set by WriteSet: valid and test have the last day of the training rows
  std::uint64_t train_rows = 1'000'000;
  std::uint64_t valid_rows = 50'000;
  std::uint64_t test_rows = 100'000;
  std::string dir;
  unsigned threads = 1;  // does not affect the bytes
};

// First rows of the generator for each file, far apart, so that valid and test do not depend on the number of training
// rows.
inline constexpr std::uint64_t kValidFirstRow = 1ULL << 40;
inline constexpr std::uint64_t kTestFirstRow = 1ULL << 41;

struct SetResult {
  bool existed = false;  // the same complete set existed; nothing was written
  std::string report;    // generate.json: parameters; per file rows, bytes, positive share and best AUC and log-loss
};

// Called regularly on the calling thread with the rows made and the total rows.
using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

// Creates `dir` and writes the set. Each file gets its name when it is complete, and generate.json is the last, so a
// set with generate.json is complete. Replaces files of another set; keeps a set with the same parameters and the
// recorded sizes. kInvalidArgument, kIo; kOverloaded if another process is writing there.
Expected<SetResult> WriteSet(const SetOptions& options, const Progress& progress = {});

// Checks that `options.dir` holds exactly this set, as WriteSet leaves it, and writes nothing. The error names the file
// and the parameter or size that differs: kInvalidArgument, kNotFound, kIo.
Expected<SetResult> CheckSet(const SetOptions& options);

}  // namespace tarn::generate

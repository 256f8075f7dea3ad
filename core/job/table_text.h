// Parses the description of a table, for the C and Python interfaces (worker/tarn_c.h): TOML with the names and ranges
// of the job file.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"
#include "core/job/job.h"
#include "core/table/table_spec.h"

namespace tarn {

// Parses table `name` from `text`. Every key is optional:
//
//   kind = "sparse"          # or "dense", which needs rows
//   dim = 16                 # values per row; default 1
//   rows = 1000              # dense only: keys are 0..rows-1
//   pushes = "gradients"     # or "deltas", of local steps; the optimizer then has no l2
//   [initializer]
//   kind = "normal"          # zero, constant (value), uniform (low, high), normal (mean, stddev)
//   stddev = 0.01
//   [optimizer]              # the keys of the job file's; without this section: the job's
//   kind = "adagrad"
//   learning_rate = 0.05
//
// The rest is as `job` runs it (AsRun): consistency, codecs and life, and for tables that do not set one the optimizer
// of their role, [optimizer.embedding] of sparse tables and [optimizer.dense] of dense ones. kInvalidArgument names the
// table, the line, the key and what was expected, and for an unknown key the nearest known one.
Expected<TableSpec> ParseTable(std::string_view name, std::string_view text, const Job& job = {});

}  // namespace tarn

// Reads the sections of a job, or of a table, that choose an update rule and its options. Which options there are
// follows from the rules (core/table/update_rule.h).
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "core/job/section_reader.h"

namespace tarn {

// Sentences about keys that have no effect (ParseJob).
using Notes = std::vector<std::string>;

// [optimizer] and its roles: `in` is of the first. What it gives for the roles goes to said.optimizer, which keys the
// roles give themselves to said.by_section.
Status ReadOptimizer(SectionReader in, OptimizerSection& out, SaidKeys& said, Notes* notes);

// The rule of one table. kInvalidArgument: as for a job, and for an option of other rules.
Status ReadTableOptimizer(SectionReader in, OptimizerSpec& out);

}  // namespace tarn

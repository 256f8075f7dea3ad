// Reads the sections of a job, or of a table, that choose an update rule and its options. The update rules define the
// options (core/table/update_rule.h).
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "core/job/section_reader.h"

namespace tarn {

// Notes about keys without effect (ParseJob).
using Notes = std::vector<std::string>;

// Reads [optimizer], the section of `in`, and the sections of its roles. Stores the values of [optimizer], which the
// roles inherit, in explicit_keys.optimizer, and the keys that the roles set themselves in explicit_keys.by_section.
Status ReadOptimizer(SectionReader in, OptimizerSection& out, ExplicitKeys& explicit_keys, Notes* notes);

// Reads [local]: its own keys, and those of its rule.
Status ReadLocal(SectionReader in, LocalSection& out);

// Reads the rule of one table. kInvalidArgument as for a job, and for options of other rules.
Status ReadTableOptimizer(SectionReader in, OptimizerSpec& out);

}  // namespace tarn

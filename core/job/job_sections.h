// Which section of a job file a key belongs to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tarn {

// The sections that have a key of this name, in the order of docs/job-file.md: "batch_rows" -> {"[train]"}. Keys that
// tables and roles inherit are listed only under [consistency] and [optimizer].
std::vector<std::string> SectionsWithKey(std::string_view key);

}  // namespace tarn

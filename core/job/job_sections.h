// Which section of a job file a key belongs to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tarn {

// The sections that have a key of this name, in the order of docs/job-file.md: "batch_rows" -> {"[train]"}. What
// tables and roles have from [consistency] and [optimizer] is named as a key of these alone.
std::vector<std::string> SectionsWithKey(std::string_view key);

}  // namespace tarn

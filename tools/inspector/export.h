// `tarn-inspect export`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/table/table_spec.h"

namespace tarn::inspector {

struct ExportOptions {
  std::vector<std::string> tables;  // empty: all
  ValueCodec codec = ValueCodec::kFp32;
  std::string since;  // empty: full; else a checkpoint, or the number of one that this one builds on
};

// Writes the parameters of a checkpoint for serving (serving/export_format.h): all of them, or those that changed and
// went since another checkpoint of the run. It verifies the files first and holds no more than a section. Returns what
// to tell.
Expected<std::string> ExportCheckpoint(const std::string& path, const std::string& out, const ExportOptions& options);

// A number for the state of these of a checkpoint's tables, the same for the same tables and the same chain of files:
// what a delta names as its base. Tables that the last of the generations does not know of do not count.
std::uint64_t ContentOf(const Manifest& manifest, std::size_t generations, const std::vector<TableSpec>& tables);

}  // namespace tarn::inspector

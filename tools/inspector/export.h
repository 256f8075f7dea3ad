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
  std::string since;  // empty: full; else path of an older checkpoint, or id of an older generation of the same
};

// Writes the parameters of a checkpoint for serving (serving/export_format.h): all of them, or those changed and
// removed since another checkpoint of the run. Verifies the files first and keeps at most one section in memory.
// Returns the output text.
Expected<std::string> ExportCheckpoint(const std::string& path, const std::string& out, const ExportOptions& options);

// A hash by which a delta identifies its base: of `tables` and of the files of the first `generations` (at least 1)
// generations of a checkpoint. Tables that the last of these generations does not contain are ignored.
std::uint64_t ContentOf(const Manifest& manifest, std::size_t generations, const std::vector<TableSpec>& tables);

}  // namespace tarn::inspector

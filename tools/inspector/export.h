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
  std::string since;  // empty: full; else a checkpoint, or the number of one of its base generations
};

// Writes the parameters of a checkpoint for serving (serving/export_format.h): all of them, or those changed and
// removed since another checkpoint of the run. Verifies the files first and keeps at most one section in memory.
// Returns the output text.
Expected<std::string> ExportCheckpoint(const std::string& path, const std::string& out, const ExportOptions& options);

// A number that identifies the state of these tables in a checkpoint, by which a delta refers to its base. Equal for
// equal tables and equal files. Tables that the last of the generations does not have are ignored.
std::uint64_t ContentOf(const Manifest& manifest, std::size_t generations, const std::vector<TableSpec>& tables);

}  // namespace tarn::inspector

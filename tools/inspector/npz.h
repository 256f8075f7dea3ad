// `tarn-inspect npz`.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::inspector {

struct NpzOptions {
  std::vector<std::string> tables;  // empty: all
  bool slots = true;
};

// Writes a checkpoint as NumPy arrays: for each table NAME.keys (uint64), NAME.values (float32, rows x dim), and if the
// table has them NAME.slots (float32), NAME.last (uint32) and NAME.score (float32). Row i of all arrays belongs to the
// same key. Verifies the files first and keeps only a part of them in memory. Returns the output text.
Expected<std::string> ConvertToNpz(const std::string& path, const std::string& out, const NpzOptions& options);

}  // namespace tarn::inspector

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

// Writes a checkpoint as NumPy arrays: for each table NAME.keys (uint64), NAME.values (float32, rows x dim), and where
// there are any NAME.slots (float32), NAME.last (uint32) and NAME.score (float32), row i of all of them the same key.
// It verifies the files first and holds no more than a piece of them. Returns what to tell.
Expected<std::string> ConvertToNpz(const std::string& path, const std::string& out, const NpzOptions& options);

}  // namespace tarn::inspector

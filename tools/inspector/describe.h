// `tarn-inspect list` and `show`.
#pragma once

#include <string>

#include "core/error.h"

namespace tarn::inspector {

// The checkpoints of a run, whole ones and others, as text for a person or as one JSON array.
Expected<std::string> ListRun(const std::string& run_dir, bool json);

// One checkpoint: what it is of, where the training stood, its tables and generations.
Expected<std::string> ShowCheckpoint(const std::string& path, bool json);

}  // namespace tarn::inspector

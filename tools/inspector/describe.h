// `tarn-inspect list` and `show`.
#pragma once

#include <string>

#include "core/error.h"

namespace tarn::inspector {

// The checkpoints of a run, complete or not, as text or as a JSON array.
Expected<std::string> ListRun(const std::string& run_dir, bool json);

// One checkpoint: its job, the progress of training, its tables and generations.
Expected<std::string> ShowCheckpoint(const std::string& path, bool json);

}  // namespace tarn::inspector

#include "scheduler/epochs/phase.h"

namespace tarn::scheduler {

std::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kWaiting: return "waiting";
    case Phase::kTrain: return "train";
    case Phase::kValidate: return "validate";
    case Phase::kTest: return "test";
    case Phase::kBestCheckpoint: return "checkpoint";
    case Phase::kFinalCheckpoint:
    case Phase::kLeaving: return "finishing";
  }
  return "unknown";
}

}  // namespace tarn::scheduler

// The phase of a run.
#pragma once

#include <cstdint>
#include <string_view>

namespace tarn::scheduler {

enum class Phase : std::uint8_t {
  kWaiting,  // for the fleet to be complete
  kTrain,
  kValidate,
  kTest,
  kBestCheckpoint,
  kFinalCheckpoint,  // or the hash of the final state
  kLeaving,          // workers get the reply that there is no more work
};

// The name in Progress.phase.
std::string_view Name(Phase phase);

}  // namespace tarn::scheduler

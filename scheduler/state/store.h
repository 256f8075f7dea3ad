// What the scheduler needs done outside of its state machine: files. The real one (file_store.h) writes to the run's
// directory; the simulator's keeps them in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/types.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// How a write to a SchedulerStore has ended: durable, or not, and why. What failed may be there or not, in part or
// whole.
struct StoreWritten {
  enum class What : std::uint8_t { kState, kManifest };
  What what = What::kState;
  std::uint64_t number = 0;  // of the state, or of the checkpoint
  Status status;
};

// Calls return at once. Each write is reported once, through Scheduler::OnWritten, when it has ended; writes and
// removals take effect in the order of their calls, but a removal may take long, and delays no write.
class SchedulerStore {
 public:
  virtual ~SchedulerStore() = default;
  virtual void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) = 0;
  virtual void RemoveCheckpoint(const std::string& directory) = 0;
  virtual std::vector<std::string> Removing() const { return {}; }  // directories that still exist
  // Only for runs with durability "log": replaces the state by a new file (rule G1), one at a time; drops it at the
  // end.
  virtual void WriteState(std::uint64_t /*number*/, const SchedulerState&) {}
  virtual void RemoveState() {}
};

}  // namespace tarn::scheduler

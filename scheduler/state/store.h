// The file operations of the scheduler. FileStore (file_store.h) writes to the run's directory; the simulator stores
// files in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/types.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// The result of a write to a SchedulerStore: durable, or an error. After an error the data may be absent, incomplete or
// complete.
struct StoreWritten {
  enum class What : std::uint8_t { kState, kManifest, kAddresses };
  What what = What::kState;
  std::uint64_t number = 0;  // number of the state, of the checkpoint, or of the list of addresses
  Status status;
};

// The HTTP address of a process.
struct ProcessAddress {
  std::string_view role;   // "scheduler", "server" or "worker"
  std::uint32_t rank = 0;  // of the server or worker; the scheduler's is 0
  std::string http;        // "http://HOST:PORT"
  friend bool operator==(const ProcessAddress&, const ProcessAddress&) = default;
};

// Calls do not block. The end of each write is reported once, through Scheduler::OnWritten. Writes take effect in the
// order of their calls. A removal begins when all earlier writes have ended, and does not delay later ones.
class SchedulerStore {
 public:
  virtual ~SchedulerStore() = default;
  virtual void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) = 0;
  virtual void RemoveCheckpoint(const std::string& directory) = 0;
  virtual std::vector<std::string> Removing() const { return {}; }  // directories whose removal has not ended
  // Only for runs with durability "log". WriteState replaces the state by a new file (rule G1); the caller has at most
  // one in progress. RemoveState: the store removes the state once the run has ended.
  virtual void WriteState(std::uint64_t /*number*/, const SchedulerState&) {}
  virtual void RemoveState() {}
  // Only for fleets in which a process serves HTTP: replaces the list of addresses (rule N8). At most one in progress.
  virtual void WriteAddresses(std::uint64_t /*number*/, const std::vector<ProcessAddress>&) {}
};

}  // namespace tarn::scheduler

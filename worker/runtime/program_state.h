// The state that a program keeps in checkpoints (rules K9, K10 of docs/protocol.md): asks the client whether a
// checkpoint needs it, saves it in time, and reads saved states. Internal to worker/.
//
//   state.Keep(save);                 // from now on
//   state.SaveAfterTick(clock);       // before each request
//   state.OnTick();                   // after each tick
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "core/types.h"
#include "worker/runtime/runtime.h"

namespace tarn::worker {

// Read: any thread. The others: the thread that makes the requests; without Keep, any thread.
class ProgramState {
 public:
  // The runtime outlives it. rank: of the worker; chunk_bytes: of an encoded state.
  ProgramState(Runtime* runtime, WorkerRank rank, std::size_t chunk_bytes)
      : runtime_(runtime), rank_(rank), chunk_bytes_(chunk_bytes) {}

  // `save` returns the state. It is called on the thread that makes the requests. Its error ends the client. Returns
  // when the client has recorded that there is state: checkpoints whose order reaches the client later contain it.
  void Keep(std::function<Expected<Buffer>()> save);
  // The program has ticked.
  void OnTick() { ticked_ = save_ != nullptr; }
  // In the first call after a tick, saves the state if a checkpoint needs it. `clock`: that of the program.
  void SaveAfterTick(Clock clock) {
    if (ticked_.load(std::memory_order_relaxed) && ticked_.exchange(false)) SaveWhileWanted(clock);
  }
  // Saves the state if a checkpoint needs it, in a program that waits for leases.
  void SaveWhileWaiting(Clock clock) {
    if (save_ == nullptr) return;
    ticked_ = false;
    SaveWhileWanted(clock);
  }

  // The state of the program of that rank in the checkpoint from which the run continues; empty: none.
  Expected<Buffer> Read(WorkerRank rank);

 private:
  // Asks again after each save: a checkpoint of a drained fleet may be cut again, with the same state.
  void SaveWhileWanted(Clock clock) {
    while (SaveIfWanted(clock)) continue;
  }
  bool SaveIfWanted(Clock clock);
  Expected<std::vector<Buffer>> Save(CheckpointId checkpoint, Clock clock);

  Runtime* runtime_;
  const WorkerRank rank_;
  const std::size_t chunk_bytes_;
  std::function<Expected<Buffer>()> save_;
  std::atomic<bool> ticked_{false};  // the program has requested nothing since its last tick; only with save_
  std::mutex reading_;               // held while a saved state is read
};

}  // namespace tarn::worker

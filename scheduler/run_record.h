// The record of a run for its progress, its manifests and its state on disk: combines the figures of earlier starts, of
// ended nodes and of the parts of the scheduler. Changes only its own sums.
#pragma once

#include <cstdint>
#include <string>

#include "core/codec/manifest.h"
#include "core/message.h"
#include "scheduler/checkpoints/checkpoint_coordinator.h"
#include "scheduler/epochs/epochs.h"
#include "scheduler/leases/leases.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/progress.h"
#include "scheduler/progress/totals.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

class RunRecord final : public ManifestSource {
 public:
  struct Options {
    std::string job_text;
    std::uint64_t fingerprint = 0, run = 0;
    std::uint32_t epochs = 1;  // of the job
    // Of earlier starts of the run, from the manifest.
    std::uint64_t earlier_samples = 0, earlier_died = 0, batches_repeated = 0;
  };
  // The objects that it reads; all outlive it.
  struct Context {
    const Membership* membership = nullptr;
    const Leases* leases = nullptr;
    const Epochs* epochs = nullptr;
  };
  RunRecord(Options options, const Context& context);

  void OnHeartbeat(const Sender& sender, const Heartbeat& heartbeat) { totals_.OnHeartbeat(sender, heartbeat); }
  void OnVerdict(const Verdict& verdict);

  Manifest Make(const Positions& at, bool trust_done, TimeUs now) const override;
  std::uint64_t workers_died() const override { return options_.earlier_died + context_.membership->died(); }
  // A state without the fields that the checkpoint coordinator adds.
  SchedulerState MakeState(TimeUs now) const;
  // A hash that differs between two states if a node may have seen the difference, or a restart needs it. Figures that
  // only grow with time are not included.
  std::uint64_t StateRevision(const CheckpointCoordinator& cuts) const;
  // The progress without the figures of checkpoints and of the end of the run.
  Progress MakeProgress(TimeUs now) const;
  // `hash` combined with the state that this object reads.
  std::uint64_t AddTo(std::uint64_t hash) const;

 private:
  std::uint64_t Samples() const;  // trained rows of all epochs
  void AddWorkers(Progress* out) const;

  Options options_;
  Context context_;
  Totals totals_;
  std::uint64_t batches_repeated_;
};

}  // namespace tarn::scheduler

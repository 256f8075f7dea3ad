// Resuming a run from a checkpoint (rule K5): finds the checkpoint, and rejects one of another job.
#pragma once

#include <optional>
#include <string>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/job/job.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// The checkpoint that `path` means: itself if it holds a MANIFEST, else the newest whole one of the run in it. The
// error names durability "none" where that is why there is none.
Expected<std::string> ResolveCheckpoint(const std::string& path);

// Checks that the logs in the folder of a run, if there are any, have beside them the state without which no run can
// continue from them, or are of a run that is over. kNotFound names the state, and a checkpoint to continue from
// instead.
Status CheckLogsHaveState(const std::string& run_dir);

// Checks that the run's folder holds no checkpoints of another run: only those of the run of `resumed`, which is one of
// them; empty: none. A run counts all checkpoints in its folder toward checkpoints_kept. kAlreadyExists names one.
Status CheckCheckpointsAreOurs(const std::string& run_dir, const std::string& resumed);

// Whether `job` may continue from a checkpoint of `manifest`: seed, data, model, batch and kinds of optimizers must be
// the same; fleet, consistency, storage, rates and numbers of epochs may differ. kInvalidArgument: the error names
// the section, the key and both values.
Status CheckSameJob(const Job& job, const Manifest& manifest, const std::string& directory);

// Whether `job` has the epoch in which a checkpoint of `manifest` was cut. kInvalidArgument names train.epochs and what
// is expected at least.
Status CheckEpochs(const Job& job, const Manifest& manifest, const std::string& directory);

// Rule G5: adapts `state` to the folder `run_dir`, in which it was found: its checkpoints are the ones in that folder,
// wherever the folder was when the state was written. Returns the manifest of the checkpoint at which the logs begin;
// none: they begin with the run. The error names the file; its code is that of ReadManifest, or kCorrupt if the
// checkpoint is not the one that the state names.
Expected<std::optional<Manifest>> TakeUp(const std::string& run_dir, SchedulerState* state);

}  // namespace tarn::scheduler

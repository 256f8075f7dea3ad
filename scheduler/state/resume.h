// Resuming a run from a checkpoint (rule K5): finding it, and refusing another job's.
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

// That the logs in the folder of a run, if there are any, have the state beside them without which nobody can go on
// from them, or are of a run that is over. kNotFound names the state, and the checkpoint from which to go on without.
Status CheckLogsHaveState(const std::string& run_dir);

// That no checkpoints lie in a run's folder but those that `resumed`, one of them, goes on from (empty: none does): a
// run counts what lies there toward its checkpoints_kept. kAlreadyExists names one.
Status CheckCheckpointsAreOurs(const std::string& run_dir, const std::string& resumed);

// Whether `job` may go on from a checkpoint of `manifest`: seed, data, model, batch and kinds of optimizers must be
// the same; fleet, consistency, storage, rates and numbers of epochs may differ. kInvalidArgument: the error names
// the section, the key and both values.
Status CheckSameJob(const Job& job, const Manifest& manifest, const std::string& directory);

// Whether `job` has the epoch in which a checkpoint of `manifest` was cut. kInvalidArgument names train.epochs and what
// is expected at least.
Status CheckEpochs(const Job& job, const Manifest& manifest, const std::string& directory);

// Rule G5: makes `state` one of the folder `run_dir`, in which it lies now: its checkpoints are those in there,
// wherever the folder lay when it was written. Returns the manifest of the checkpoint that its logs go back to, none if
// they go back to the beginning. The error (as of ReadManifest; kCorrupt if that is not the checkpoint which the state
// speaks of) names the file.
Expected<std::optional<Manifest>> TakeUp(const std::string& run_dir, SchedulerState* state);

}  // namespace tarn::scheduler

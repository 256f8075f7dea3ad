// Resuming a run from a checkpoint or from its saved state (rules K5, G5): finds the checkpoint, and rejects one of
// another job or run.
#pragma once

#include <optional>
#include <string>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/job/job.h"
#include "scheduler/state/state.h"

namespace tarn::scheduler {

// The directory of the checkpoint at `path`, without a slash at its end: `path` itself, made absolute, if it contains a
// MANIFEST, else the newest complete checkpoint of the run in it. If there is none because of durability "none", the
// error gives that reason.
Expected<std::string> ResolveCheckpoint(const std::string& path);

// The manifest of the checkpoint in `directory`. It names the best checkpoint by the path that it had; here the one of
// the same name beside `directory` counts, if it exists, because the folder of the run may have been moved.
Expected<Manifest> ReadMovedManifest(const std::string& directory);

// Checks the logs in the directory of a run, if any: the state that is needed to continue from them must exist, unless
// the run has ended. kNotFound names the state, and a checkpoint from which to continue instead.
Status CheckLogsHaveState(const std::string& run_dir);

// Checks that the run directory has only checkpoints of the run of `resumed`, which is one of them; empty: it must have
// none. This matters because a run counts all checkpoints in its directory toward checkpoints_kept. kAlreadyExists
// names a checkpoint of another run.
Status CheckCheckpointsAreOurs(const std::string& run_dir, const std::string& resumed);

// Checks that `job` may continue from a checkpoint of `manifest`: seed, data, model, batch and kinds of optimizers must
// be the same; fleet, consistency, storage, rates and numbers of epochs may differ. kInvalidArgument names the section,
// the key and both values.
Status CheckSameJob(const Job& job, const Manifest& manifest, const std::string& directory);
// The same for a checkpoint of the job `old`; `place` says where its values stand, for the error.
Status CheckSameJob(const Job& job, const Job& old, const std::string& place);

// Checks that train.epochs of `job` includes the epoch in which a checkpoint of `manifest` was cut. kInvalidArgument
// names train.epochs and the minimum.
Status CheckEpochs(const Job& job, const Manifest& manifest, const std::string& directory);

// Adapts `state` to the directory `run_dir` in which it was found (rule G5): its checkpoints are those in that
// directory, which may have been moved. Returns the manifest of the checkpoint at which the logs begin; nullopt: they
// begin with the run. The error names the file; its code is that of ReadManifest, or kCorrupt if the checkpoint is not
// the one that the state names.
Expected<std::optional<Manifest>> TakeUp(const std::string& run_dir, SchedulerState* state);

}  // namespace tarn::scheduler

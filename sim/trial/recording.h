// The record that tools/launch --record leaves of a run: all that its parameters depend on besides its job and data.
//
//   RUN_DIR/record/shard-N     the order in which shard N applied pushes, answered pulls and received ticks; in lines
//                              of server/shard/effect.h
//   RUN_DIR/record/worker-N    the leases of worker N, and when each of its batches began; in lines of
//                              worker/train/record.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "core/types.h"
#include "server/shard/effect.h"
#include "worker/train/pipeline.h"

namespace tarn::sim {

struct Recording {
  std::vector<std::vector<server::Effect>> effects;  // by shard
  std::vector<WorkerRank> leases;                    // the worker to which lease 1, 2, ... was granted
  std::vector<worker::BatchBegins> begins;           // by worker

  // The record of a run of this job, in its folder. kUnsupported: the job, or what happened in the run, cannot be
  // repeated; kNotFound: the run was not recorded, or failed; kCorrupt: the record has a line of another format, or
  // contradicts itself.
  static Expected<Recording> Load(const Job& job, const std::string& run_dir);
};

}  // namespace tarn::sim

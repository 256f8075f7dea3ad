// The state of a run and its figures so far, for progress lines, metrics.jsonl and summary.json. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "core/message.h"
#include "core/quality.h"

namespace tarn::scheduler {

Scores ScoresOf(const Quality& quality);
// Whether scores may have AUC and normalized entropy: not those of an mlp, which predicts classes (Quality::AddClass).
// Those of a program have none either if it reports no logits (Quality::has_logits).
inline bool HasAuc(const Job& job) { return job.model.kind != ModelKind::kMlp; }

// A live worker according to its last heartbeat.
struct WorkerProgress {
  WorkerRank rank;
  Incarnation incarnation;
  Clock clock, acked_clock;
  std::vector<Counter> counters;         // cumulative
  std::vector<std::uint64_t> staleness;  // histogram of its pulls, cumulative
};

struct Progress {
  std::string phase;  // "waiting", "train", "validate", "test", "checkpoint", "finishing",
                      // "done", "stopped", "failed" or "diverged"
  std::uint32_t epoch = 0;
  std::uint64_t samples = 0;        // acknowledged trained rows, over all epochs
  std::uint64_t samples_here = 0;   // the part of them since this scheduler started
  std::uint64_t samples_total = 0;  // of all epochs; 0 while unknown
  double seconds = 0;               // from the first grant to the end of the last train split (so far: to now)
  double train_seconds = 0;         // the part of them in train phases
  Quality train;                    // progressive validation in the current epoch
  std::vector<EpochResult> epochs;
  std::vector<std::uint64_t> staleness;                    // merged histogram of all pulls
  std::vector<std::uint64_t> delay;                        // merged histogram of the gradient delays of all sections
  std::map<std::string, double> counters, shard_counters;  // sums over all workers, and over all shards, by name
  std::vector<WorkerProgress> workers;                     // live, by incarnation
  std::uint32_t workers_live = 0, workers_waiting = 0, shards_joined = 0;
  std::uint64_t workers_died = 0, batches_repeated = 0;
  std::uint64_t rows[3] = {0, 0, 0};  // train, validation, test set; 0 while unknown
  Clock min_clock, max_clock;
  std::uint64_t state_hash = 0;  // of the last checkpoint or the final state: "parameters_hash"
  bool has_state_hash = false;
  std::string last_checkpoint;  // directory of the newest complete one
  std::string best_checkpoint;
  bool best_lost = false;  // best_checkpoint is not of the best epoch, which has no complete checkpoint
};

}  // namespace tarn::scheduler

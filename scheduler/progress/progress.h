// How a run stands and what it has shown so far: what progress lines, metrics.jsonl and summary.json are made of.
// Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/limits.h"
#include "core/message.h"
#include "core/quality.h"

namespace tarn::scheduler {

Scores ScoresOf(const Quality& quality);

// A live worker, as its last heartbeat told.
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
  std::uint64_t samples = 0;        // trained rows that are acknowledged, over all epochs
  std::uint64_t samples_here = 0;   // of them since this scheduler started (less after a resume)
  std::uint64_t samples_total = 0;  // of all epochs; 0 while unknown
  double seconds = 0;               // from the first grant to the end of the last train split (so far: to now)
  double train_seconds = 0;         // of them in train phases
  Quality train;                    // progressive, current epoch
  std::vector<EpochResult> epochs;
  std::vector<std::uint64_t> staleness;    // merged histogram of all pulls
  std::map<std::string, double> counters;  // summed: workers' by name, shards' as "server.<name>"
  std::vector<WorkerProgress> workers;     // live, by incarnation
  std::uint32_t workers_live = 0, workers_waiting = 0, shards_joined = 0;
  std::uint64_t workers_died = 0, batches_repeated = 0;
  std::uint64_t rows[3] = {0, 0, 0};  // train, validation, test set; 0 while unknown
  Clock min_clock, max_clock;
  std::uint64_t state_hash = 0;  // of the last checkpoint or the final state: "parameters_hash"
  bool has_state_hash = false;
  std::string last_checkpoint;  // directory of the newest whole one
  std::string best_checkpoint;
  bool best_lost = false;  // it is not of the best epoch, whose own could not be written
};

// Cumulative counters and staleness histograms, one set a node of the fleet. What an incarnation last reported stays
// in the totals when it has ended; its set goes.
class Totals {
 public:
  // Names of counters that are kept of workers which have ended; of further ones nothing is.
  static constexpr std::size_t kEndedNamesMax = 4 * std::size_t{limits::kCountersMax};

  void OnHeartbeat(const Sender& sender, const Heartbeat& heartbeat);
  void End(Incarnation worker);
  std::map<std::string, double> Counters() const;
  std::vector<std::uint64_t> Staleness() const;
  // What the worker last reported, into the fields of `out` that come from here.
  void Fill(WorkerProgress* out) const;
  std::size_t nodes() const { return workers_.size() + shards_.size(); }

 private:
  struct Node {
    std::vector<Counter> counters;
    std::vector<std::uint64_t> staleness;
  };
  std::map<Incarnation, Node> workers_, shards_;
  std::map<std::string, double> ended_counters_;
  std::vector<std::uint64_t> ended_staleness_;
};

}  // namespace tarn::scheduler

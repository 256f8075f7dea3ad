// The scheduler: places partitions, watches the fleet, hands out data, coordinates checkpoints and evaluation. A
// deterministic state machine like server::Shard; docs/protocol.md gives the rules.
//
// Not thread-safe: one thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/message.h"

namespace tarn::scheduler {

struct Manifest;  // scheduler/manifest.h

// What the scheduler needs done outside: files. The real one writes to the run's directory; the simulator's keeps
// it in memory. Calls return when the effect is durable.
class SchedulerStore {
 public:
  virtual ~SchedulerStore() = default;
  virtual Status WriteManifest(const std::string& directory, const Manifest& manifest) = 0;
  virtual void RemoveCheckpoint(const std::string& directory) = 0;
};

struct SchedulerOptions {
  Job job;
  std::string job_text;              // sent to nodes with Welcome
  std::string checkpoints_directory; // checkpoint n is written to <this>/ckpt-<n>
  std::uint64_t first_incarnation = 1;
  const Manifest* resume = nullptr;  // copied; null: a new run
  std::string resume_directory;      // of that manifest
};

// How the run stands: what progress lines, metrics.jsonl and summary.json are made of.
struct EpochResult {
  std::uint32_t epoch = 0;
  Quality train;
  std::optional<Quality> valid, test;
  bool best = false;
};
struct Progress {
  std::string phase;             // "waiting", "train", "validate", "test", "checkpoint", "finishing", "done", "failed"
  std::uint32_t epoch = 0;
  std::uint64_t samples = 0;     // trained rows that are acknowledged, over all epochs
  std::uint64_t samples_total = 0;  // of all epochs; 0 while unknown
  Quality train;                 // progressive, current epoch
  std::vector<EpochResult> epochs;
  std::vector<std::uint64_t> staleness;        // merged histogram
  std::map<std::string, double> counters;      // summed over nodes
  std::uint32_t workers_live = 0;
  std::uint64_t workers_died = 0, batches_repeated = 0;
  Clock min_clock, max_clock;
  std::uint64_t state_hash = 0;  // of the last checkpoint or final state; "parameters_hash"
  std::string last_checkpoint;   // directory of the newest whole one
};

class Scheduler {
 public:
  Scheduler(SchedulerOptions options, SchedulerStore* store);
  ~Scheduler();

  void Start(TimeUs now);
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  TimeUs NextTimer() const;

  // Ctrl-C: cut a checkpoint (if the job's durability has them), then shut the fleet down; status "stopped".
  void RequestStop(TimeUs now, Outbox* out);
  // On request, as periodic ones.
  void RequestCheckpoint(TimeUs now, Outbox* out);

  bool stopped() const;               // every node has been told to stop
  const Shutdown& stop_reason() const;
  const View& view() const;
  Progress progress() const;
  std::uint64_t StateHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::scheduler

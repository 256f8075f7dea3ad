// Runs the scheduler's state machine over a transport, on one thread. Writes its notes to the log, and the files of a
// run: job.toml, metrics.jsonl, summary.json and, through FileStore, manifests, the state and the list of addresses.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "core/codec/manifest.h"
#include "core/disk_pool.h"
#include "core/job/job.h"
#include "core/log.h"
#include "core/metrics/metrics_file.h"
#include "core/metrics/status_report.h"
#include "net/transport.h"
#include "scheduler/file_store.h"
#include "scheduler/progress/summary.h"
#include "scheduler/progress/worker_lines.h"
#include "scheduler/scheduler.h"

namespace tarn::scheduler {

struct LoopOptions {
  Job job;
  std::string run_dir;  // must exist
  std::string bind;
  std::string advertise;  // host name for other nodes; empty: see net/advertise.h
  std::string port_file;  // file to which the address and a newline are written atomically; empty: none
  std::optional<Manifest> resume;
  std::string resume_directory;
  // Durability "log": the run's number, the first incarnation to assign, and the saved state of a run whose processes
  // all ended.
  std::uint64_t run = 0;
  std::uint64_t first_incarnation = 1;
  std::optional<SchedulerState> restore;
  std::shared_ptr<StatusFeed> feed;  // feed of the process's HTTP server; null: none
  std::string http;                  // address of that server; empty: none
};

// The path of the file with the address of the running scheduler, for tools. The loop removes the file at the end.
std::string AddressFile(const std::string& run_dir);

class Loop {
 public:
  // `transport` outlives the loop.
  Loop(LoopOptions options, net::Transport* transport);
  ~Loop();

  // Runs until the fleet has stopped. An error is the reason why the run failed; a cleanly stopped run has not failed.
  Status Run();

  // Any thread. The first call stops cleanly, the second without waiting for the checkpoint, the third exits at once.
  void RequestStop() {
    stops_.fetch_add(1, std::memory_order_relaxed);
    transport_->Wake();
  }

 private:
  void PrepareRunDirectory(SchedulerOptions* scheduler);
  Status Begin();
  void Step();
  bool HandleCompletedWrites();  // returns whether there were any
  void HandleStops();
  void Flush();
  void WriteMetrics();
  Status End();
  TimeUs Now() const;

  LoopOptions options_;
  net::Transport* transport_;
  DiskPool disk_;  // outlives the members that post to it
  std::unique_ptr<FileStore> store_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<MetricsWriter> metrics_;
  Rate rate_;
  WorkerLines worker_lines_;
  Outbox outbox_;
  std::vector<net::Received> received_;
  TimeUs next_metrics_ = 0;
  std::atomic<int> stops_{0};
  int stops_seen_ = 0;
};

}  // namespace tarn::scheduler

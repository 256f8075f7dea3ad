// A record of a worker's leases, pushes and ticks. With it tests check, independently of the scheduler, that every row
// was trained exactly once although workers were killed, and tools/replay repeats a run (sim/trial/recording.h).
//
//   lease INCARNATION LEASE                                         the worker receives the lease
//   begin INCARNATION PUSHED                                        the worker requests the rows of a training batch;
//                                                                   PUSHED: number of batches it has pushed so far
//   batch INCARNATION EPOCH SPLIT_FIRST_ROW FIRST_ROW ROWS CLOCK    before the batch's first push leaves
//   tick INCARNATION CLOCK                                          before the first Tick of that clock leaves
//
// Rows are lines of the training set in the epoch's order. Each line is one write to the end of the file: it outlives a
// SIGKILL of the process (not a loss of power), and several workers may share the file.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/message.h"

namespace tarn::worker {

// Not thread-safe. Before Open, and after Open has failed, all calls write nothing and return OK.
class Record {
 public:
  Record() = default;
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Appends to `path`. kIo or kNotFound if it cannot be written.
  Status Open(const std::string& path);
  bool open() const { return file_ >= 0; }

  Status Lease(Incarnation worker, LeaseId lease);
  Status Begin(Incarnation worker, std::uint64_t pushed);
  // Rows [offset, offset + rows) of the lease.
  Status Batch(Incarnation worker, const LeaseGrant& lease, std::uint64_t offset, std::uint64_t rows, Clock clock);
  // Writes only the first tick of each clock.
  Status Tick(Incarnation worker, Clock clock);

 private:
  Status Write(const std::string& line);

  std::string path_;
  int file_ = -1;
  Clock ticked_;
};

}  // namespace tarn::worker

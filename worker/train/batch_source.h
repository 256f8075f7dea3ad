// The reading side of the pipeline: a thread that makes batches with plans from leases, a few ahead of the training
// loop. Staleness does not limit reading and planning, because they use no parameters.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"
#include "worker/train/batch_planner.h"
#include "worker/train/batch_reader.h"
#include "worker/train/trace.h"

namespace tarn::worker {

// All public functions must be called on one thread.
class BatchSource {
 public:
  // Who reads: a thread of this object, or the caller in ReadIfCaller.
  enum class Reader : std::uint8_t { kThread, kCaller };
  // `wake` is called on the thread that reads when a batch is ready or reading has failed.
  BatchSource(const Job& job, DatasetSet sets, BatchPlanner planner, Trace* trace, std::function<void()> wake,
              Reader reader = Reader::kThread);
  // Frees the GPU memory of plans: no work that uses them may be in progress.
  ~BatchSource();

  void AddLease(const LeaseGrant& lease);
  // The next batch in the order of leases, if it is ready.
  std::optional<PreparedBatch> TryTake();
  // The batch that TryTake would return, valid until then; null if none is ready.
  const PreparedBatch* Next() const;
  // With kCaller: reads and plans the next batch of the leases if none is ready. With kThread it does nothing.
  void ReadIfCaller();
  // The purpose of the batch that TryTake would return, if one is ready.
  std::optional<LeasePurpose> NextPurpose() const;
  // Returns a batch's memory for reuse. Neither this process nor a GPU may still use the batch.
  void Recycle(PreparedBatch batch);
  // Number of leases with batches that are not taken yet.
  std::size_t leases_open() const;
  // The error that stopped reading, if any.
  std::optional<Error> error() const;
  // Times of the reader's thread.
  struct Seconds {
    double read = 0, plan = 0;
    double await_room = 0;  // waiting because the loop has not taken its batches
  };
  Seconds seconds() const;

 private:
  void Run();
  // Reads the next batch of the lease `open_`; false after an error.
  bool ReadNext(PreparedBatch batch);
  // Both with mutex_ held, if there is a thread.
  void OpenNext();
  void TakeSpare(PreparedBatch* batch);
  // Waits for room for another batch; false if this object is being destroyed.
  bool AwaitRoom(PreparedBatch* batch);

  // A lease, and how many of its rows have been read.
  struct OpenLease {
    LeaseGrant lease;
    std::uint64_t offset = 0;
    bool done() const { return offset >= lease.rows; }
  };

  BatchReader reader_;
  const std::size_t ahead_;  // maximum number of ready batches
  std::function<void()> wake_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LeaseGrant> leases_;
  std::deque<PreparedBatch> ready_;
  std::vector<PreparedBatch> spare_;
  std::size_t leases_open_ = 0;
  std::optional<Error> error_;
  bool closing_ = false;
  Seconds seconds_;
  OpenLease open_;       // used only by the thread that reads
  std::jthread thread_;  // none with kCaller
};

}  // namespace tarn::worker

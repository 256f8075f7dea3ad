// Passes the items of a log from the thread that appends them to the strand that writes them, and the results back.
// Items that arrive during a commit are taken together by the next one (group commit).
//
//   queue.Append(record);                                     // may call `begin`, which posts this loop:
//   while (auto items = queue.Take(); !items.empty()) {
//     queue.Publish(WriteAndSync(std::move(items)), durable);
//     queue.Pause();
//   }
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "server/log/log_queue.h"
#include "server/log/shard_log.h"

namespace tarn::server {

class CommitQueue {
 public:
  // `begin` starts a commit on the strand. It is called with the queue's lock held, and only if no commit is queued or
  // running.
  explicit CommitQueue(std::function<void()> begin) : begin_(std::move(begin)) {}

  // Must be called first. The sequence of the next record is `last` + 1.
  void Start(LogSequence last);

  // For the thread of the log's owner. After a failure items are queued, but never taken.
  LogSequence BeginSegment(CheckpointId cut, LogRecord head);
  LogSequence Append(LogRecord record);
  void DropBefore(CheckpointId cut);
  // Ends the current pause of the strand; later calls of Pause return at once.
  void Stop();
  // The newest durable record, or the first failure.
  Expected<LogSequence> Synced();

  // For the strand. Take removes and returns all items; if there are none, the commit must end. If no item is urgent,
  // it first waits for one, for 2 ms at most.
  std::vector<LogQueue::Item> Take();
  // Reports the result of writing: the newest durable record, or a failure.
  void Publish(Status status, LogSequence durable);
  // Whether the strand has time for other work: the queue is empty, and the log has neither failed nor been stopped.
  bool IsIdle();
  // Waits until a commit is worth its disk operation: until enough bytes are queued, for a fraction of a millisecond at
  // most. Returns at once after Stop or a failure.
  void Pause();

 private:
  void Wake();

  std::function<void()> begin_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable more_;
  LogQueue queue_;
  bool committing_ = false;  // a commit is queued or running
  bool waits_for_urgent_ = false;
  bool stop_ = false;
  LogSequence synced_;
  Status status_;
};

}  // namespace tarn::server

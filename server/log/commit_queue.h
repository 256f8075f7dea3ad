// Passes the items of a log from the thread that appends them to the strand that writes them, and the results back.
// Items that arrive during a commit are taken together by the next one (group commit).
//
//   queue.Append(record);
//   queue.EndTurn();                                          // may call `begin`, which posts this loop:
//   for (auto items = queue.Take(); !items.empty(); items = queue.Take())
//     queue.Publish(WriteAndSync(std::move(items)), durable);
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
  // Begins a commit if records are queued and none is running, so that the records of a turn are usually written
  // together. If 1 MiB has gathered, or with BeginSegment or DropBefore, a commit begins without it.
  void EndTurn();
  // Begins the last commit; from then on no record waits.
  void Stop();
  // The newest durable record, or the first failure.
  Expected<LogSequence> Synced();

  // For the strand. Take removes and returns all items; if there are none, the commit must end. If none is urgent and
  // they have less than 1 MiB, it first waits for more, for 5 ms at most.
  std::vector<LogQueue::Item> Take();
  // Reports the result of writing: the newest durable record, or a failure.
  void Publish(Status status, LogSequence durable);
  // Whether the strand has time for other work: the queue is empty, and the log has neither failed nor been stopped.
  bool IsIdle();

 private:
  bool IsDue() const;
  void Wake();

  std::function<void()> begin_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable more_;
  LogQueue queue_;
  bool committing_ = false;    // a commit is queued or running
  bool strand_waits_ = false;  // in Take
  bool stop_ = false;
  LogSequence synced_;
  Status status_;
};

}  // namespace tarn::server

// The log of one shard: its inputs in the order in which they changed its state, durable before they are acknowledged
// (docs/protocol.md, L1 to L6). The log knows nothing of what a record means (server/log/record.h does).
//
//   log->Open(identity);                          // a new run; or log->Recover(identity, from, sink)
//   log->BeginSegment(checkpoint, head);          // the state as it is now; recovery may start here
//   LogSequence at = log->Append(record);         // returns at once
//   ...                                           // the loop wakes: TakeSynced() >= at: acknowledge
//
// An interface, so that a simulated fleet can lose its power. Called by the shard's thread; only Open and Recover
// block. After an error from TakeSynced nothing more becomes durable, and the shard stops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/buffer.h"
#include "core/error.h"
#include "core/types.h"

namespace tarn::server {

// Whose log it is. Every segment names it, so that no log is taken for another.
struct LogIdentity {
  std::uint64_t run = 0;  // drawn when the run began
  std::uint64_t job = 0;  // its fingerprint
  ShardId shard;
  friend bool operator==(const LogIdentity&, const LogIdentity&) = default;
};

// One record: what it is, and the raw arrays of a push. Buffers are shared, not copied.
struct LogRecord {
  Buffer head, keys, values;
  std::size_t bytes() const { return head.size() + keys.size() + values.size(); }
};

// Takes a log as it is read.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // A record. `begins`: the first of a segment, its head. The first call of all is the head of the segment asked for.
  // An error ends the reading with it.
  virtual Status OnRecord(LogSequence sequence, bool begins, LogRecord record) = 0;
};

class ShardLog {
 public:
  virtual ~ShardLog() = default;

  // Makes a log for a shard that has none. kAlreadyExists if there is one.
  virtual Status Open(const LogIdentity& identity) = 0;
  // Hands all records to `sink`, from the segment that began at checkpoint `from` on, and goes on behind the last. An
  // unfinished tail that was never durable is left out. kCorrupt, kNotFound, kWrongJob, kUnsupported name the file, the
  // place and what was expected: records that were durable are missing or damaged, up to `at_least` or to the log's own
  // mark; another job's, another run's or another shard's log; a newer format. A segment must be begun before the next
  // Append.
  virtual Status Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) = 0;

  // Ends the segment before and begins another with this record, its head. `cut`: the checkpoint whose cut the head is
  // of (0: the beginning of the run), or none: only a continuation, where no recovery starts.
  static constexpr CheckpointId kContinues{UINT64_MAX};
  virtual LogSequence BeginSegment(CheckpointId cut, LogRecord head) = 0;
  virtual LogSequence Append(LogRecord record) = 0;
  // Checkpoint `cut` is whole: segments before the one that began at it are not needed any more.
  virtual void DropBefore(CheckpointId cut) = 0;

  // The newest record that is durable, with all before it; or why no more will be.
  virtual Expected<LogSequence> TakeSynced() = 0;
  // Bytes of the segments that are kept; 0 while DropBefore is under way: nobody knows yet.
  virtual std::uint64_t bytes() const = 0;
};

}  // namespace tarn::server

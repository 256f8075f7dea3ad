// The log of one shard: its inputs in the order in which they changed its state, durable before they are acknowledged
// (docs/protocol.md, L1 to L6). The log does not interpret records (server/log/record.h does).
//
//   log->Open(identity);                          // a new run; or log->Recover(identity, from, at_least, sink)
//   log->BeginSegment(checkpoint, head);          // the current state; recovery may start here
//   LogSequence at = log->Append(record);         // returns at once
//   ...                                           // the loop wakes: TakeSynced() >= at: acknowledge
//
// An interface, so that a simulated fleet can simulate power loss. Called by the shard's thread; only Open and Recover
// block. After an error from TakeSynced nothing more becomes durable, and the shard stops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/buffer.h"
#include "core/error.h"
#include "core/types.h"

namespace tarn::server {

// Identifies the log. Every segment contains it, so that logs cannot be confused.
struct LogIdentity {
  std::uint64_t run = 0;  // a random number per run
  std::uint64_t job = 0;  // the job's fingerprint
  ShardId shard;
  friend bool operator==(const LogIdentity&, const LogIdentity&) = default;
};

// One record: its head, and the raw arrays of a push. Buffers are shared, not copied.
struct LogRecord {
  Buffer head, keys, values;
  bool is_urgent = true;  // otherwise it may wait, for milliseconds, for the disk operation of another record
  std::size_t bytes() const { return head.size() + keys.size() + values.size(); }
};

// Receives the records of a log during recovery.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Handles a record. `begins`: it is the head of a segment. The first call is the head of the requested segment. An
  // error ends the recovery.
  virtual Status OnRecord(LogSequence sequence, bool begins, LogRecord record) = 0;
};

class ShardLog {
 public:
  virtual ~ShardLog() = default;

  // Makes a log for a shard that has none. kAlreadyExists if there is one. Here and for Recover, kUnavailable: another
  // process holds the log.
  virtual Status Open(const LogIdentity& identity) = 0;
  // Passes all records, from the segment of checkpoint `from` onward, to `sink`; later appends follow the last one.
  // Skips an incomplete tail that was never durable. Errors name the file, the place and what was expected. kCorrupt,
  // kNotFound: durable records, up to `at_least` or the log's own mark, are damaged or missing. kWrongJob: the log of
  // another job, run or shard. kUnsupported: another format. Call BeginSegment before the next Append.
  virtual Status Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) = 0;

  // Ends the current segment and starts another one with this record as its head. `cut`: the checkpoint whose cut the
  // head describes (0: the start of the run), or kContinues, at which no recovery starts. Returns the head's sequence.
  static constexpr CheckpointId kContinues{UINT64_MAX};
  virtual LogSequence BeginSegment(CheckpointId cut, LogRecord head) = 0;
  // Returns the record's sequence.
  virtual LogSequence Append(LogRecord record) = 0;
  // Must be called when checkpoint `cut` is complete: removes the segments before the one that begins at its cut.
  // Returns at once.
  virtual void DropBefore(CheckpointId cut) = 0;

  // The newest record that is durable, with all before it; or the error because of which no more become durable.
  virtual Expected<LogSequence> TakeSynced() = 0;
  // Bytes of the existing segments; 0, for unknown, while DropBefore is in progress.
  virtual std::uint64_t bytes() const = 0;
};

}  // namespace tarn::server

// The log of a shard of a simulated fleet, and what must hold when the shard comes back from it:
//
//   - it is what it was when it had appended the last record that is still there: rows, slots, lives, clocks,
//     watermarks and gathered pushes, to the bit
//   - what it had acknowledged is in it: pushes by watermark, ticks
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/view.h"
#include "sim/disks/memory_shard_log.h"
#include "sim/oracle.h"

namespace tarn::sim {

// A MemoryShardLog that says when a shard has read all of it.
class SimLog final : public server::ShardLog {
 public:
  // recovered(last): the shard has handled the records up to `last`, and nothing since.
  SimLog(server::MemoryDisk* disk, std::string directory, std::function<void(LogSequence)> recovered)
      : log_(disk, std::move(directory)), recovered_(std::move(recovered)) {}

  Status Open(const server::LogIdentity& identity) override { return log_.Open(identity); }
  Status Recover(const server::LogIdentity& identity, CheckpointId from, LogSequence at_least,
                 server::LogSink& sink) override;
  LogSequence BeginSegment(CheckpointId cut, server::LogRecord head) override;
  LogSequence Append(server::LogRecord record) override { return log_.Append(std::move(record)); }
  void DropBefore(CheckpointId cut) override { log_.DropBefore(cut); }
  Expected<LogSequence> TakeSynced() override { return log_.TakeSynced(); }
  std::uint64_t bytes() const override { return log_.bytes(); }

  server::MemoryShardLog& files() { return log_; }

 private:
  server::MemoryShardLog log_;
  std::function<void(LogSequence)> recovered_;
  bool comes_back_ = false;
};

// Of one shard, over all its starts.
class LogWitness {
 public:
  // The log ends with this record now, and the state is the one with this hash.
  void OnState(LogSequence last, std::uint64_t hash) { states_[last] = hash; }
  void OnPushAcked(Incarnation worker, PartitionId partition, Sequence sequence);
  void OnTickAcked(Incarnation worker, Clock clock);

  // The shard is back, with this state, behind this record. Empty if it is as it was then; `compared` counts.
  std::string CheckState(LogSequence last, std::uint64_t hash, std::uint64_t* compared);
  // Of the workers that the fleet still has.
  std::string CheckWatermarks(const std::vector<WorkerEntry>& workers,
                              const std::function<Sequence(Incarnation, PartitionId)>& watermark) const;
  Clock Ticked(Incarnation worker) const;  // as acknowledged
  std::string CheckTick(Incarnation worker, Clock tick) const;
  // Another run begins, or the log is not there.
  void Clear() { *this = {}; }

 private:
  std::map<LogSequence, std::uint64_t> states_;
  std::map<std::pair<Incarnation, PartitionId>, Sequence> pushes_;
  std::map<Incarnation, Clock> ticks_;
};

}  // namespace tarn::sim

// The log of a shard of a simulated fleet, and the checks after the shard has recovered from it:
//
//   - its state equals that after it appended the last surviving record: rows, slots, lives, clocks,
//     watermarks and gathered pushes, to the bit
//   - acknowledged pushes (by watermark) and ticks are in it
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

// A MemoryShardLog that reports when a shard has read all of it.
class SimLog final : public server::ShardLog {
 public:
  // recovered(last) is called when the shard has handled the records up to `last`, and nothing else since.
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

  server::MemoryShardLog& memory_log() { return log_; }  // the fleet schedules its writes and syncs

 private:
  server::MemoryShardLog log_;
  std::function<void(LogSequence)> recovered_;
  bool recovering_ = false;
};

// Records the states of one shard over all its starts.
class LogWitness {
 public:
  // Records the hash of the state after record `last`.
  void OnState(LogSequence last, std::uint64_t hash) { states_[last] = hash; }
  void OnPushAcked(Incarnation worker, PartitionId partition, Sequence sequence);
  void OnTickAcked(Incarnation worker, Clock clock);

  // Checks the state after recovery up to record `last`. Returns an empty string if it equals the recorded one; counts
  // comparisons in `compared`.
  std::string CheckState(LogSequence last, std::uint64_t hash, std::uint64_t* compared);
  // Checks after recovery that the watermarks of the workers that the fleet still has include all acknowledged pushes.
  std::string CheckWatermarks(const std::vector<WorkerEntry>& workers,
                              const std::function<Sequence(Incarnation, PartitionId)>& watermark) const;
  Clock Ticked(Incarnation worker) const;  // the highest acknowledged tick
  // Checks that the shard's tick of a worker is not below the acknowledged one.
  std::string CheckTick(Incarnation worker, Clock tick) const;
  // Forgets all records: for another run, or a missing log.
  void Clear() { *this = {}; }

 private:
  std::map<LogSequence, std::uint64_t> states_;
  std::map<std::pair<Incarnation, PartitionId>, Sequence> pushes_;
  std::map<Incarnation, Clock> ticks_;
};

}  // namespace tarn::sim

#include "sim/sim_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::sim {

Status SimLog::Recover(const server::LogIdentity& identity, CheckpointId from, LogSequence at_least,
                       server::LogSink& sink) {
  recovering_ = true;
  return log_.Recover(identity, from, at_least, sink);
}

// After a recovery this is the shard's first call (ShardLog::Recover), so the shard has handled all records.
LogSequence SimLog::BeginSegment(CheckpointId cut, server::LogRecord head) {
  if (std::exchange(recovering_, false)) recovered_(log_.recovered());
  return log_.BeginSegment(cut, std::move(head));
}

void LogWitness::OnPushAcked(Incarnation worker, PartitionId partition, Sequence sequence) {
  Sequence& most = pushes_[{worker, partition}];
  most = std::max(most, sequence);
}

void LogWitness::OnTickAcked(Incarnation worker, Clock clock) {
  Clock& most = ticks_[worker];
  most = std::max(most, clock);
}

std::string LogWitness::CheckState(LogSequence last, std::uint64_t hash, std::uint64_t* compared) {
  const auto state = states_.find(last);
  states_.erase(states_.upper_bound(last), states_.end());  // those records are lost, and their numbers are reused
  if (state == states_.end()) return {};                    // the log ends within the records of one step
  ++*compared;
  if (state->second == hash) return {};
  return fmt::format(
      "has a state after its recovery to log record {} that differs from the state when it appended the record",
      last.value);
}

std::string LogWitness::CheckWatermarks(const std::vector<WorkerEntry>& workers,
                                        const std::function<Sequence(Incarnation, PartitionId)>& watermark) const {
  for (const auto& [of, acked] : pushes_) {
    const auto& [worker, partition] = of;
    const bool known = std::ranges::any_of(workers, [&](const auto& entry) { return entry.incarnation == worker; });
    if (!known || watermark(worker, partition) >= acked) continue;
    return fmt::format("had acknowledged push {} of incarnation {} to partition {}, but has {} after its recovery",
                       acked.value, worker.value, partition.value, watermark(worker, partition).value);
  }
  return {};
}

Clock LogWitness::Ticked(Incarnation worker) const {
  const auto acked = ticks_.find(worker);
  return acked == ticks_.end() ? Clock() : acked->second;
}

std::string LogWitness::CheckTick(Incarnation worker, Clock tick) const {
  const Clock acked = Ticked(worker);
  if (acked <= tick) return {};
  return fmt::format("had acknowledged the tick of incarnation {} to {}, but has {} after its recovery", worker.value,
                     acked.value, tick.value);
}

}  // namespace tarn::sim

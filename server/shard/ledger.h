// The watermarks of a shard: of each worker incarnation and partition, the last push applied or gathered (rules E1,
// E2). Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/types.h"

namespace tarn::server {

class Ledger {
 public:
  explicit Ledger(std::uint32_t partitions = 1) : partitions_(partitions) {}

  enum class Verdict { kRepeated, kNext, kBeyond };

  // 0 if it has pushed nothing yet. partition < partitions, here and below.
  Sequence Watermark(Incarnation incarnation, PartitionId partition) const {
    const auto it = watermarks_.find(incarnation);
    return it == watermarks_.end() ? Sequence{} : it->second[partition.value];
  }

  Verdict Judge(Incarnation incarnation, PartitionId partition, Sequence sequence) const {
    const Sequence watermark = Watermark(incarnation, partition);
    if (sequence <= watermark) return Verdict::kRepeated;
    return sequence.value == watermark.value + 1 ? Verdict::kNext : Verdict::kBeyond;
  }

  // The next push is applied or gathered.
  void Advance(Incarnation incarnation, PartitionId partition) {
    auto& row = watermarks_.try_emplace(incarnation, partitions_).first->second;
    ++row[partition.value].value;
  }

  void Drop(Incarnation incarnation) { watermarks_.erase(incarnation); }

  // As a log has them: each with a watermark for every partition.
  void Restore(std::map<Incarnation, std::vector<Sequence>> watermarks) { watermarks_ = std::move(watermarks); }

  const std::map<Incarnation, std::vector<Sequence>>& watermarks() const { return watermarks_; }

 private:
  std::uint32_t partitions_;
  std::map<Incarnation, std::vector<Sequence>> watermarks_;  // by partition
};

}  // namespace tarn::server

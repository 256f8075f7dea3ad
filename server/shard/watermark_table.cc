#include "server/shard/watermark_table.h"

#include <fmt/format.h>

namespace tarn::server {

WatermarkTable WatermarksOf(const Store& store) {
  WatermarkTable all;
  for (const PartitionId partition : store.owned())
    for (const auto& [worker, watermark] : store.Find(partition)->watermarks().entries()) {
      const auto [it, added] = all.try_emplace(worker);
      if (added) it->second.resize(std::size_t{1} << store.partition_bits());
      it->second[partition.value] = watermark;
    }
  return all;
}

Status RestoreWatermarks(const WatermarkTable& watermarks, Store* store) {
  for (const auto& [worker, of_partitions] : watermarks) {
    if (of_partitions.size() != std::size_t{1} << store->partition_bits())
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("incarnation {}: watermarks of {} partitions, expected {}", worker.value,
                              of_partitions.size(), std::size_t{1} << store->partition_bits()));
    for (std::uint32_t p = 0; p < of_partitions.size(); ++p) {
      Partition* partition = store->Find(PartitionId(p));
      if (partition != nullptr)
        partition->watermarks().Set(worker, of_partitions[p]);
      else if (of_partitions[p].value != 0)
        return Fail(ErrorCode::kCorrupt, fmt::format("incarnation {}: watermark {} of partition {}, which is another "
                                                     "shard's",
                                                     worker.value, of_partitions[p].value, p));
    }
  }
  return {};
}

void DropWatermarks(Incarnation worker, Store* store) {
  for (const PartitionId partition : store->owned()) store->Find(partition)->watermarks().Drop(worker);
}

}  // namespace tarn::server

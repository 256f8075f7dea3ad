#include "core/view.h"

namespace tarn {

std::vector<ShardId> EvenOwners(std::uint32_t partition_bits, std::uint32_t shards) {
  const std::uint64_t partitions = std::uint64_t{1} << partition_bits;
  std::vector<ShardId> owners(partitions);
  for (std::uint64_t p = 0; p < partitions; ++p)
    owners[p] = ShardId(static_cast<std::uint32_t>(p * shards / partitions));
  return owners;
}

}  // namespace tarn

#include "server/snapshot.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/hash.h"

namespace tarn::server {

std::uint64_t RowHash(std::uint64_t table_salt, Key key, std::span<const float> row) {
  std::uint64_t state = HashCombine(table_salt, key);
  std::size_t i = 0;
  for (; i + 2 <= row.size(); i += 2) {
    const std::uint64_t low = std::bit_cast<std::uint32_t>(row[i]);
    const std::uint64_t high = std::bit_cast<std::uint32_t>(row[i + 1]);
    state = HashCombine(state, low | high << 32);
  }
  if (i < row.size()) state = HashCombine(state, std::bit_cast<std::uint32_t>(row[i]));
  return state;
}

std::uint64_t StateHash(const std::vector<TableRows>& tables) {
  std::uint64_t sum = 0;
  for (const TableRows& table : tables)
    for (const PartitionRows& partition : table.partitions)
      for (std::size_t i = 0; i < partition.keys.size(); ++i)
        sum += RowHash(table.salt, partition.keys[i],
                       std::span(partition.rows).subspan(i * table.row_floats, table.row_floats));
  return sum;
}

std::uint64_t RowCount(const std::vector<TableRows>& tables) {
  std::uint64_t count = 0;
  for (const TableRows& table : tables)
    for (const PartitionRows& partition : table.partitions) count += partition.keys.size();
  return count;
}

std::uint64_t ByteCount(const std::vector<TableRows>& tables) {
  std::uint64_t bytes = 0;
  for (const TableRows& table : tables)
    for (const PartitionRows& partition : table.partitions)
      bytes += partition.keys.size() * sizeof(Key) + partition.rows.size() * sizeof(float);
  return bytes;
}

std::vector<std::uint32_t> KeyOrder(const PartitionRows& partition) {
  std::vector<std::uint32_t> order(partition.keys.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return partition.keys[a] < partition.keys[b]; });
  return order;
}

}  // namespace tarn::server

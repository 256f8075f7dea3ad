#include "server/snapshot.h"

#include <bit>

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

std::uint64_t StateHash(std::uint64_t table_salt, std::uint32_t row_floats, const PartitionRows& rows) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < rows.keys.size(); ++i)
    sum += RowHash(table_salt, rows.keys[i], std::span(rows.rows).subspan(i * row_floats, row_floats));
  return sum;
}

std::uint64_t StateHash(const std::vector<TableRows>& tables) {
  std::uint64_t sum = 0;
  for (const TableRows& table : tables)
    for (const PartitionRows& partition : table.partitions) sum += StateHash(table.salt, table.row_floats, partition);
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

}  // namespace tarn::server

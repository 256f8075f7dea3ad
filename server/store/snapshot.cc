#include "server/store/snapshot.h"

#include <algorithm>

#include "core/hash.h"

namespace tarn::server {

std::uint64_t RowHash(std::uint64_t table_salt, Key key, std::span<const std::uint32_t> row) {
  std::uint64_t state = HashCombine(table_salt, key);
  std::size_t i = 0;
  for (; i + 2 <= row.size(); i += 2) {
    const std::uint64_t low = row[i], high = row[i + 1];
    state = HashCombine(state, low | high << 32);
  }
  if (i < row.size()) state = HashCombine(state, row[i]);
  return state;
}

std::uint64_t SeenHash(std::uint64_t table_salt, const Seen& seen) {
  constexpr std::uint64_t kSeen = 0x7365656e;
  return HashCombine(HashCombine(table_salt ^ kSeen, seen.first), seen.second);
}

std::uint64_t FragmentHash(std::uint64_t table_salt, PartitionId partition, std::span<const std::uint32_t> words) {
  constexpr std::uint64_t kPartition = 0x7061727469;
  if (std::ranges::all_of(words, [](std::uint32_t word) { return word == 0; })) return 0;
  return RowHash(table_salt ^ kPartition, partition.value, words);
}

std::uint64_t StateHash(std::uint64_t table_salt, std::uint32_t row_words, const PartitionRows& rows) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < rows.keys.size(); ++i)
    sum += RowHash(table_salt, rows.keys[i], std::span(rows.rows).subspan(i * row_words, row_words));
  for (const Seen& seen : rows.seen) sum += SeenHash(table_salt, seen);
  if (rows.state) sum += FragmentHash(table_salt, rows.partition, rows.state->words);
  return sum;
}

std::uint64_t StateHash(const std::vector<TableRows>& tables) {
  std::uint64_t sum = 0;
  for (const TableRows& table : tables)
    for (const PartitionRows& partition : table.partitions) sum += StateHash(table.salt, table.row_words, partition);
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
    for (const PartitionRows& partition : table.partitions) bytes += ByteCount(partition);
  return bytes;
}

std::uint64_t ByteCount(const PartitionRows& rows) {
  return (rows.keys.size() + rows.removed.size()) * sizeof(Key) + rows.rows.size() * sizeof(std::uint32_t) +
         rows.seen.size() * sizeof(Seen);
}

}  // namespace tarn::server

// The format of a shard's checkpoint files: RocksDB sorted tables (SST) in ascending order of key.
//
//   key    16 bytes, big-endian: table id (32 bits), partition (32 bits), key of the row (64 bits): a partition is one
//          range. Ids and partition bits are those of the checkpoint's MANIFEST.
//   value  the row's record (core/row_layout.h), little-endian words; empty: the key has no row any more, whatever
//          older generations say (files of a checkpoint with a base only).
//
// The first file of each shard ends with the states of its partitions by table: table id kStateTable, the partition,
// and the id of the table in place of a key; value: the version (64 bits) and the words of the rule's state. Each
// checkpoint has all of them, whatever its base: only those of the newest generation count. Version 0 is not written.
//
// Checkpoint 7 writes, for each shard, "7-shard-<id>.sst", and where a partition has more rows than its writer holds at
// a time also "7-shard-<id>.1.sst", ".2.sst", ...: of a key only one of them has an entry. Keys that wait for their
// admission are in "7-shard-<id>.seen.sst", value: how often they were pushed (32 bits, little-endian), of all
// partitions of the shard, whatever the base: only those of the newest generation count. What would be empty is not
// there. MANIFEST (core/codec/manifest.h) holds every file's bytes and CRC-32C, and the tables. A file of version 1 is
// called "shard-<id>.sst" and holds rows alone. Reader and writer share this header.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/types.h"

namespace tarn::server {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

struct CheckpointKey {
  static constexpr std::size_t kBytes = 16;
  TableId table;
  PartitionId partition;
  Key key = 0;
};

inline constexpr TableId kStateTable{0xffffffff};

inline std::array<char, CheckpointKey::kBytes> EncodeCheckpointKey(const CheckpointKey& key) {
  std::array<char, CheckpointKey::kBytes> bytes;
  const std::uint64_t high = std::uint64_t{key.table.value} << 32 | key.partition.value;
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<char>(key.key >> (56 - 8 * i));
  }
  return bytes;
}

// `bytes` has CheckpointKey::kBytes.
inline CheckpointKey DecodeCheckpointKey(std::string_view bytes) {
  std::uint64_t high = 0, low = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    high = high << 8 | static_cast<unsigned char>(bytes[i]);
    low = low << 8 | static_cast<unsigned char>(bytes[8 + i]);
  }
  return {TableId(static_cast<std::uint32_t>(high >> 32)), PartitionId(static_cast<std::uint32_t>(high)), low};
}

// The number-th file of a shard's rows.
inline std::string CheckpointFileName(CheckpointId id, ShardId shard, std::size_t number) {
  const std::string more = number == 0 ? "" : fmt::format(".{}", number);
  return fmt::format("{}-shard-{}{}.sst", id.value, shard.value, more);
}

inline std::string SeenFileName(CheckpointId id, ShardId shard) {
  return fmt::format("{}-shard-{}.seen.sst", id.value, shard.value);
}

}  // namespace tarn::server

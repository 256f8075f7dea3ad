// The format of a shard's checkpoint files: RocksDB sorted tables (SST) in ascending order of key.
//
//   key    16 bytes, big-endian: table id (32 bits), partition (32 bits), key of the row (64 bits). The entries of a
//          table in a partition are therefore contiguous. Ids and partition bits are those of the checkpoint's
//          MANIFEST.
//   value  the row's record (core/row_layout.h), little-endian words. Empty: the key was removed, and its rows in older
//          generations are obsolete (only in checkpoints with a base).
//
// The first file of each shard ends with the states of its partitions by table. Key: table id kStateTable, the
// partition, and the id of the table in place of the row's key. Value: the version (64 bits) and the words of the
// rule's state. Every checkpoint, also one with a base, contains the states of all partitions except those with version
// 0. Only the states of the newest generation are valid.
//
// Checkpoint 7 writes, for each shard, "7-shard-<id>.sst" and, if a partition has more rows than the writer sorts at a
// time, "7-shard-<id>.1.sst", ".2.sst", ... At most one of these files has an entry for a key of a table. Keys that
// wait for admission are in "7-shard-<id>.seen.sst", with the number of their pushes as value (32 bits, little-endian).
// Every checkpoint, also one with a base, contains those of all partitions; only those of the newest generation are
// valid. Empty files are not written. MANIFEST (core/codec/manifest.h) contains the size and CRC-32C of every file, and
// the tables. Under a MANIFEST of version 1, each shard has one file, "shard-<id>.sst", which contains only rows.
// Reader and writer share this header.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/types.h"

namespace tarn::server {

static_assert(std::endian::native == std::endian::little, "words are written in the byte order of the machine");

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

// `bytes` has CheckpointKey::kBytes bytes.
inline CheckpointKey DecodeCheckpointKey(std::string_view bytes) {
  std::uint64_t high = 0, low = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    high = high << 8 | static_cast<unsigned char>(bytes[i]);
    low = low << 8 | static_cast<unsigned char>(bytes[8 + i]);
  }
  return {TableId(static_cast<std::uint32_t>(high >> 32)), PartitionId(static_cast<std::uint32_t>(high)), low};
}

// The name of file `number` (0, 1, ...) of a shard's rows.
inline std::string CheckpointFileName(CheckpointId id, ShardId shard, std::size_t number) {
  const std::string more = number == 0 ? "" : fmt::format(".{}", number);
  return fmt::format("{}-shard-{}{}.sst", id.value, shard.value, more);
}

inline std::string SeenFileName(CheckpointId id, ShardId shard) {
  return fmt::format("{}-shard-{}.seen.sst", id.value, shard.value);
}

}  // namespace tarn::server

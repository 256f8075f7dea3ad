// The files of a checkpoint's base, taken over into its directory (rule K7), so that each directory is whole by itself
// and removing one takes nothing from another. Blocks; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/types.h"

namespace tarn::server {

struct BaseShare {
  CheckpointId base;
  std::string base_directory;
  // Of `shards` shards, this one takes every shards-th file, beginning with its own number.
  ShardId shard;
  std::uint32_t shards = 1;
};

// Links the shard's share of the base's files, but those of keys seen, which the new checkpoint replaces, into
// `directory`, which is there; where the file system has no hard links, or the base lies on another one, copies them,
// verifies and syncs the copies. kNotFound: the base, or a file of it, is not there or not whole; kIo: `directory`
// cannot be written. The error names the file.
Status TakeOverBase(const BaseShare& share, const std::string& directory);

}  // namespace tarn::server

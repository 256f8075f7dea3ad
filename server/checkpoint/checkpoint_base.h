// Adds the files of an increment's base to its directory (rule K7), so that each directory is self-contained and
// removing one does not affect another. Blocks; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/types.h"

namespace tarn::server {

struct BaseShare {
  CheckpointId base;
  std::string base_directory;
  // The shard links the files whose index, modulo `shards`, equals its own number modulo `shards`. Files of keys that
  // wait for admission (.seen.sst) are not counted.
  ShardId shard;
  std::uint32_t shards = 1;
};

// Links the shard's share of the base's files into `directory`, which must exist; existing files are replaced. Leaves
// out the files of keys that wait for admission, because the new checkpoint contains all such keys. If the file system
// has no hard links, or the base is on another one, copies the files, verifies and syncs the copies. kNotFound: the
// base, or a file of it, is missing, unreadable or damaged; kIo: `directory` cannot be written. The error names the
// file.
Status LinkBaseFiles(const BaseShare& share, const std::string& directory);

}  // namespace tarn::server

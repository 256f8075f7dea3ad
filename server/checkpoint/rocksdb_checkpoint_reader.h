// Reads a checkpoint's files (server/checkpoint/checkpoint_format.h) for one shard. Blocks; any thread.
#pragma once

#include <string>

#include "core/error.h"
#include "server/checkpoint/checkpoint_store.h"

namespace tarn::server {

// Hands `sink` the tables and the rows that it wants; see CheckpointStore::Load. A file that holds none of them is left
// at a look at its index; of the others every byte is verified, and only the ranges of wanted partitions are decoded.
Status ReadCheckpoint(const std::string& directory, RowSink& sink);

}  // namespace tarn::server

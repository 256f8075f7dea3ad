// Reads a checkpoint's files (server/checkpoint/checkpoint_format.h) for one shard. Blocks; any thread.
#pragma once

#include <string>

#include "core/error.h"
#include "server/checkpoint/checkpoint_store.h"

namespace tarn::server {

// Passes the tables, and the partitions that `sink` wants, to `sink`; see CheckpointStore::Load. Opens only files whose
// range of partitions in the manifest overlaps the wanted ones. Verifies these files completely before it passes rows,
// and decodes only the wanted partitions.
Status ReadCheckpoint(const std::string& directory, RowSink& sink);

}  // namespace tarn::server

// Prepares the directory of a log before anything is written. Used by every ShardLog that stores files.
#pragma once

#include <string>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_reader.h"
#include "server/log/shard_log.h"

namespace tarn::server {

// Prepares the directory for a new log: removes the log files that have this identity, and those whose header is torn.
// The caller must know that nothing in them was acknowledged. kAlreadyExists: the directory contains another log, or
// files of another format version; nothing is removed then.
Status ClearForNewLog(FileOps* files, const std::string& directory, const LogIdentity& identity);

// Removes the segments `tail.torn`, which have no durable contents.
Status RemoveTorn(FileOps* files, const std::string& directory, const LogTail& tail);

}  // namespace tarn::server

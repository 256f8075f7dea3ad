// Prepares the directory of a log before anything is written. Used by every ShardLog that stores files.
#pragma once

#include <string>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_reader.h"
#include "server/log/shard_log.h"

namespace tarn::server {

// Prepares the directory for a new log. Removes the files of an earlier start of the same run from which nothing was
// acknowledged. kAlreadyExists: the directory contains another log, or files that may be one; nothing is removed then.
Status ClearForNewLog(FileOps* files, const std::string& directory, const LogIdentity& identity);

// Removes the segments without durable contents.
Status RemoveTorn(FileOps* files, const std::string& directory, const LogTail& tail);

}  // namespace tarn::server

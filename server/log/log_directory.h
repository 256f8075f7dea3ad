// The folder of a log before anything is written into it. Used by every ShardLog that keeps files.
#pragma once

#include <string>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_reader.h"
#include "server/log/shard_log.h"

namespace tarn::server {

// Makes the folder fit for a new log: what a beginning of the same run left, from which nothing was acknowledged, is
// removed. Another log in it, or something that may be one, is kAlreadyExists: then nothing is removed.
Status ClearForNewLog(FileOps* files, const std::string& directory, const LogIdentity& identity);

// Removes the segments that hold nothing durable.
Status RemoveTorn(FileOps* files, const std::string& directory, const LogTail& tail);

}  // namespace tarn::server

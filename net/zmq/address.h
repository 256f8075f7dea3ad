// Converts an endpoint to the address for ZeroMQ, and checks that it may be used.
#pragma once

#include <string>

#include "core/error.h"
#include "net/local_endpoint.h"

namespace tarn::net {

// `open`: allows endpoints that other users can reach, because keys are checked or --insecure is given. If false,
// kInvalidArgument for TCP and for Unix sockets in a directory that is not private. `folders` keeps the directories
// open. kInvalidArgument also for an invalid endpoint; kNotFound, kIo if the directory of a Unix socket cannot be
// opened.
Expected<std::string> ZmqAddress(const std::string& endpoint, bool open, LocalFolders* folders);

inline bool IsTcp(const std::string& endpoint) { return endpoint.starts_with("tcp://"); }
inline bool IsIpc(const std::string& endpoint) { return endpoint.starts_with("ipc://"); }

}  // namespace tarn::net

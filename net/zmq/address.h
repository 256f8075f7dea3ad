// What ZeroMQ binds or connects to for an endpoint of ours, where it may be used at all.
#pragma once

#include <string>

#include "core/error.h"
#include "net/local_endpoint.h"

namespace tarn::net {

// `open`: the endpoint may be one that other users of this host can reach, since keys are checked or --insecure is
// given. If not, kInvalidArgument for TCP and for a Unix socket in a folder that is not private (`folders` keeps those
// that are used). kInvalidArgument also for what is no endpoint.
Expected<std::string> ZmqAddress(const std::string& endpoint, bool open, LocalFolders* folders);

inline bool IsTcp(const std::string& endpoint) { return endpoint.starts_with("tcp://"); }
inline bool IsIpc(const std::string& endpoint) { return endpoint.starts_with("ipc://"); }

}  // namespace tarn::net

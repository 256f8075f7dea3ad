// Endpoints that only the user of this process can reach: Unix sockets in a folder of mode 0700, for fleets on one
// machine. The kernel refuses every other user, so such connections need no keys.
//
//   RUN_DIR/sockets/scheduler            the scheduler of the run in RUN_DIR
//   RUN_DIR/sockets/shard-3-5f2c01aa     a shard; the number differs at every start
//
// A folder is opened once, checked through that descriptor, and sockets are bound and connected beneath the descriptor
// (/proc/self/fd/N/NAME). So the folder that was checked is the folder that is used, and its path may be longer than
// the 107 bytes of a socket's address.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn::net {

// Stands for a new endpoint of this kind in --bind.
inline constexpr char kAnyLocalEndpoint[] = "ipc://*";

// What --bind is without being given: a local endpoint, or a port of the loopback interface where keys or --insecure
// decide who may connect.
std::string DefaultBind(bool has_keys, bool insecure);

// Where a running scheduler writes its endpoint; removed at the end of the run.
std::string AddressFile(const std::string& run_dir);

// What --scheduler names: an endpoint is returned as it is; anything else is the folder of a run, whose AddressFile is
// read, and waited for up to `seconds`. kTimeout: no scheduler has written it by then.
Expected<std::string> SchedulerEndpoint(const std::string& text, double seconds);

// Removes RUN_DIR/sockets with what is in it; with `stale_only` the sockets to which nobody listens any more. Only for
// the scheduler, which holds the run's folder.
void RemoveSockets(const std::string& run_dir, bool stale_only);

// The folders of a process's local endpoints. Outlives ZeroMQ's sockets, which connect again beneath their folders;
// then removes the files of those that Make has named. Free to use from any thread.
class LocalFolders {
 public:
  LocalFolders() = default;
  ~LocalFolders();
  LocalFolders(const LocalFolders&) = delete;
  LocalFolders& operator=(const LocalFolders&) = delete;

  // A new endpoint ipc://RUN_DIR/sockets/NAME; makes the folder. Where there is no run_dir, or it cannot hold sockets,
  // or the endpoint would be longer than limits::kEndpointBytesMax: in a new folder under that for temporary files.
  Expected<std::string> Make(const std::string& run_dir, const std::string& name);

  // The address under which ZeroMQ reaches the endpoint ipc://FOLDER/NAME from this process. With `private_only`
  // kInvalidArgument unless the folder is this user's and closed to all others (mode 0700).
  Expected<std::string> Reach(const std::string& endpoint, bool private_only);

 private:
  std::string Keep(const std::string& folder, const std::string& name);

  struct Folder {
    Descriptor file;
    unsigned long device = 0, inode = 0;
  };

  std::mutex mutex_;
  std::vector<Folder> open_;
  std::vector<std::string> sockets_, temporary_;  // what Make has named, and the folders that it has made for itself
};

}  // namespace tarn::net

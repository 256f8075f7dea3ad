// Endpoints to which only the user of this process can connect: Unix sockets in a folder of mode 0700, for fleets on
// one machine. The kernel rejects all other users, so such connections need no keys.
//
//   RUN_DIR/sockets/scheduler            the scheduler of the run in RUN_DIR
//   RUN_DIR/sockets/shard-3-5f2c01aa     a shard; the number differs at every start
//
// A folder is opened once and checked through its descriptor, and sockets are bound and connected through the same
// descriptor (/proc/self/fd/N/NAME). So the checked folder is the one that is used, and its path may exceed the 107
// bytes of a socket's address.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn::net {

// Stands for a new endpoint of this kind in --bind.
inline constexpr char kAnyLocalEndpoint[] = "ipc://*";

// The default of --bind: a local endpoint, or with keys or --insecure a port of the loopback interface.
std::string DefaultBind(bool has_keys, bool insecure);

// The file to which a running scheduler writes its endpoint; removed at the end of the run.
std::string AddressFile(const std::string& run_dir);

// The endpoint for an argument of --scheduler. Returns an endpoint unchanged. Other text is the folder of a run: waits
// up to `seconds` for its AddressFile and returns the contents. kTimeout: no scheduler has written it by then.
// kCancelled: `stop`, which is called again and again while it waits, has returned true. kInvalidArgument: the text is
// neither. kIo, kTooLarge: the file cannot be read.
Expected<std::string> SchedulerEndpoint(const std::string& text, double seconds,
                                        const std::function<bool()>& stop = nullptr);

// Whether a process listens on the Unix socket with this path, which is not longer than the address of a socket.
// kUnknown: this process may not connect to it, or has no file left.
enum class Listener : std::uint8_t { kNone, kThere, kUnknown };
Listener FindListener(const std::string& path);

// Removes the sockets in RUN_DIR/sockets and that folder; with `stale_only` only sockets without a listener. Does
// nothing if the folder is not private. Only for the scheduler, which has locked the run's folder.
void RemoveSockets(const std::string& run_dir, bool stale_only);

// The folders of a process's local endpoints. Outlives ZeroMQ's sockets, which reconnect through these folders. The
// destructor removes the files of endpoints returned by Make. Any thread.
class LocalFolders {
 public:
  LocalFolders() = default;
  ~LocalFolders();
  LocalFolders(const LocalFolders&) = delete;
  LocalFolders& operator=(const LocalFolders&) = delete;

  // Makes a new endpoint ipc://RUN_DIR/sockets/NAME and its folder. If there is no run_dir, or it cannot hold sockets,
  // or the endpoint would be longer than limits::kEndpointBytesMax, uses a new folder in the directory for temporary
  // files. kInvalidArgument: RUN_DIR/sockets is not private. kNotFound, kIo: a folder cannot be created or opened.
  Expected<std::string> Make(const std::string& run_dir, const std::string& name);

  // The address with which ZeroMQ connects to the endpoint ipc://FOLDER/NAME from this process. kInvalidArgument: not
  // such an endpoint; this user may not open the folder; or, with `private_only`, the folder belongs to another user or
  // other users can access it. kNotFound, kIo: the folder cannot be opened.
  Expected<std::string> Reach(const std::string& endpoint, bool private_only);

 private:
  // Remembers the socket for the destructor. Returns its endpoint.
  std::string RegisterSocket(const std::string& folder, const std::string& name);

  struct Folder {
    Descriptor file;
    unsigned long device = 0, inode = 0;
  };

  std::mutex mutex_;
  std::vector<Folder> open_;
  std::vector<std::string> sockets_, temporary_;  // files of endpoints returned by Make, and folders created for them
};

}  // namespace tarn::net

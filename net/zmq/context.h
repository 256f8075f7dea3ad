// Shared by all transports of a process: ZeroMQ's threads, and the keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.h"
#include "core/limits.h"
#include "net/local_endpoint.h"
#include "net/zmq/curve.h"

namespace zmq {
class context_t;
}

namespace tarn::net {

// Keeps large freed blocks in the process instead of returning them to the system, so that each received frame does
// not map and fault its pages anew (glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). Idempotent.
void KeepLargeBlocks();

struct ZmqContextOptions {
  int io_threads = 1;       // IoThreadsFor
  int sockets_max = 65536;  // a transport uses a few, and one more for each lane to a peer that it connects to
};

// The number of ZeroMQ threads for a number of lanes. ZeroMQ assigns each new connection to the thread with the fewest
// connections. One thread transfers more than 1 GB/s each way, so more threads help only with several busy connections
// over a network above 10 Gb/s and with free cores; on two cores they gain nothing.
inline int IoThreadsFor(std::uint32_t lanes) { return static_cast<int>((lanes + 1) / 2); }

// Open files that a process of a fleet needs, measured and rounded up: its own (ZeroMQ's, logs, metrics), those of its
// HTTP server (kHttpFiles, not included for workers, because programs that use the library have no HTTP server), and
// those of its connections: per lane one at the server and two at the worker, and two at each side of a pair that
// shares memory.
inline constexpr std::uint64_t kHttpFiles = limits::kHttpConnectionsMax + 8;
inline std::uint64_t SchedulerFiles(std::uint64_t shards, std::uint64_t workers) {
  return 24 + kHttpFiles + shards + workers;
}
inline std::uint64_t ServerFiles(std::uint64_t own_shards, std::uint64_t workers, std::uint64_t lanes) {
  const std::uint64_t sharing = std::min<std::uint64_t>(workers, limits::kShmLanesMax);
  return 24 + kHttpFiles + own_shards * (13 + workers * lanes + 2 * sharing);
}
inline std::uint64_t WorkerFiles(std::uint64_t shards, std::uint64_t lanes) { return 21 + shards * (2 * lanes + 2); }

// ZeroMQ's threads, and the keys. One per program; the worker library makes one per Client. The destructor waits until
// sent messages have left, at most the linger time of its transports, which must be destroyed before. Any thread.
class ZmqContext {
 public:
  // Also calls KeepLargeBlocks.
  explicit ZmqContext(const ZmqContextOptions& options = {});
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  // Encrypts all later connections and admits only holders of `keys`; first checks that a connection with an unknown
  // key fails. Call it at most once, before the first transport. After an error the context must not be used.
  Status Secure(const CurveKeys& keys);

  // Secure with the keys of a file (LoadCurveKeys), for --keys. Empty path: plain connections.
  Status SecureFromFile(const std::string& path);

  // Folders of Unix sockets; they stay open until ZeroMQ has ended.
  LocalFolders& folders() { return folders_; }

  // For transports.
  zmq::context_t* raw() { return context_.get(); }
  // Null: plain connections.
  const CurveKeys* keys() const { return gate_ ? &keys_ : nullptr; }

 private:
  LocalFolders folders_;
  std::unique_ptr<zmq::context_t> context_;
  CurveKeys keys_;
  std::unique_ptr<CurveGate> gate_;
};

}  // namespace tarn::net

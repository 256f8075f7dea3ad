// What all transports of a process share: ZeroMQ's threads, and the keys.
#pragma once

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
  int sockets_max = 65536;  // a transport uses one, and one more for each lane to a peer that it connects to
};

// A connection stays with one of ZeroMQ's threads, the one with the fewest when it is made. One thread moves more than
// 1 GB/s each way, so more pay off for several busy connections over a network above 10 Gb/s, and with cores that the
// rest of the process leaves free: on two cores they cost what they gain.
inline int IoThreadsFor(std::uint32_t lanes) { return static_cast<int>((lanes + 1) / 2); }

// Open files that a process of a fleet needs: its own (ZeroMQ's, logs, metrics), those of its HTTP server (of a worker:
// in addition, programs that use the library have none) and those of its connections, measured and rounded up. Each
// connection of a shard counts once for its socket and, per worker, once for shared memory.
inline constexpr std::uint64_t kHttpFiles = limits::kHttpConnectionsMax + 8;
inline std::uint64_t SchedulerFiles(std::uint64_t shards, std::uint64_t workers) {
  return 24 + kHttpFiles + shards + workers;
}
inline std::uint64_t ServerFiles(std::uint64_t own_shards, std::uint64_t workers, std::uint64_t lanes) {
  return 24 + kHttpFiles + own_shards * (12 + workers * (lanes + 1));
}
inline std::uint64_t WorkerFiles(std::uint64_t shards, std::uint64_t lanes) { return 20 + shards * (2 * lanes + 1); }

// ZeroMQ's threads, and the keys. Exactly one per process. Destroying it waits until what was sent has left, at most
// as long as its transports linger; they must be gone before. Free to use from any thread.
class ZmqContext {
 public:
  // Also calls KeepLargeBlocks.
  explicit ZmqContext(const ZmqContextOptions& options = {});
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  // From now on all connections are encrypted and only holders of `keys` are admitted, which it proves first. Once,
  // before the first transport. An error leaves a context that must not be used.
  Status Secure(const CurveKeys& keys);

  // Secure with the keys of a file (LoadCurveKeys); no path: plain connections. What programs do with --keys.
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

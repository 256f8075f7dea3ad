// Runs the shards of one server over ZeroMQ. Each shard has its own thread, sockets, rows, log and checkpoint store.
// The shards share the ZeroMQ context, the disk pool, the memory budget, the metrics file and the stop signal.
//
//   Server server(options);
//   Status status = server.Run();   // until the scheduler stops the run, a shard fails, or RequestStop
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/metrics/status_report.h"
#include "core/types.h"
#include "net/slow_transport.h"
#include "server/stop_signal.h"

namespace tarn::server {

inline constexpr char kProgram[] = "tarn-server";

struct ServerOptions {
  std::string scheduler;  // its endpoint, or its run directory
  ServerRank rank;
  std::uint32_t shards = 1;
  std::vector<std::uint64_t> nonces;  // one per shard, random
  // The endpoint to which shards bind. With a port number other than 0, shard i of the server binds to port + i. Empty:
  // net::DefaultBind.
  std::string bind;
  // The host name or address that workers use. Empty: that of `bind`, or for a wildcard the interface that leads to the
  // scheduler (net/advertise.h).
  std::string advertise;
  std::string run_dir;                             // for metrics.jsonl, logs, tiers and sockets; empty: none
  std::string record;                              // directory for EffectRecords; empty: none
  double join_seconds = 600;                       // timeout of the scheduler's Welcome
  std::string keys;                                // key file of the fleet; empty: connections without encryption
  bool insecure = false;                           // allow TCP without keys
  bool shm = true;                                 // use shared memory with workers on this host
  int io_threads = 1;                              // ZeroMQ threads for all shards
  std::vector<std::shared_ptr<StatusFeed>> feeds;  // one per shard, or empty
  std::string http;                                // address of the process's HTTP server; empty: none
  // For experiments: delays the messages of a shard. Empty: no delay.
  std::function<net::SlowTransportOptions(ShardId)> slow_network;
};

// Shard `index` of the server.
inline ShardId ShardOf(const ServerOptions& options, std::uint32_t index) {
  return ShardId(options.rank.value * options.shards + index);
}

class Server {
 public:
  explicit Server(ServerOptions options) : options_(std::move(options)) {}

  // Blocks until every shard has ended. Ok if the scheduler has stopped the run without an error. Otherwise the reason
  // of its Shutdown, or the first error of a shard; kCancelled if RequestStop or RequestInterrupt ended it before that.
  Status Run();

  // Makes Run return soon, without a message to other nodes. Any thread.
  void RequestStop() { stop_.Set(); }
  // For Ctrl-C, which a terminal sends to all of its processes: the same while no scheduler has answered. Later it does
  // nothing, because the scheduler stops the fleet. Any thread.
  void RequestInterrupt() {
    if (!answered_) RequestStop();
  }

 private:
  ServerOptions options_;
  StopSignal stop_;
  std::atomic<bool> answered_ = false;  // by the scheduler
};

}  // namespace tarn::server

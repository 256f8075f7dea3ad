// Runs the shards of one server over ZeroMQ: one thread, one socket pair and one checkpoint store a shard; nothing is
// shared between them but the wish to stop.
//
//   Server server(options);
//   Status status = server.Run();   // until the scheduler says so, a shard fails, or RequestStop
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/metrics/status_report.h"
#include "core/types.h"
#include "server/stop_signal.h"

namespace tarn::server {

inline constexpr char kProgram[] = "tarn-server";

struct ServerOptions {
  std::string scheduler;  // its endpoint, or the folder of its run
  ServerRank rank;
  std::uint32_t shards = 1;
  std::vector<std::uint64_t> nonces;  // one a shard, random
  // Where shards are bound. With a port that is not '*', shard i of the server is bound to port + i. Empty:
  // net::DefaultBind.
  std::string bind;
  // Where workers reach the shards, a name or an address; empty: where they are bound, or for a wildcard the interface
  // that leads to the scheduler (net/advertise.h).
  std::string advertise;
  std::string run_dir;                             // metrics.jsonl; empty: none
  double join_seconds = 600;                       // how long to wait for the scheduler's welcome
  std::string keys;                                // the fleet's key file; empty: plain connections
  bool insecure = false;                           // TCP without keys
  bool shm = true;                                 // share memory with workers of this host
  int io_threads = 1;                              // of ZeroMQ, for all shards
  std::vector<std::shared_ptr<StatusFeed>> feeds;  // one a shard, or none at all
};

class Server {
 public:
  explicit Server(ServerOptions options) : options_(std::move(options)) {}

  // Blocks until every shard has ended. An error says which shard failed, and why; after RequestStop there is none.
  Status Run();

  // Ends Run soon; no other node is told. Any thread.
  void RequestStop() { stop_.Set(); }

 private:
  ServerOptions options_;
  StopSignal stop_;
};

// The endpoint of shard `index` of a server bound to `bind`.
Expected<std::string> ShardEndpoint(const std::string& bind, std::uint32_t index);

}  // namespace tarn::server

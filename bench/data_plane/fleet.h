// A fleet for a benchmark: the tarn-scheduler and tarn-server programs as processes, and the benchmark as their only
// worker. Asynchronous consistency, durability "none". One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/data_plane/child.h"
#include "core/error.h"
#include "worker/tarn.h"

namespace tarn::bench {

struct FleetOptions {
  std::string programs;           // directory of tarn-scheduler and tarn-server
  std::string transport = "tcp";  // between worker and servers: tcp (loopback), ipc or shm
  std::uint32_t busy_poll_us = 0;
  std::uint32_t lanes = 1;    // fleet.lanes
  std::uint32_t servers = 1;  // of one shard each
};

class Fleet {
 public:
  // Waits for the scheduler, not for the servers. kUnavailable, with the output of the programs, if the scheduler ends;
  // kTimeout if it does not bind a port.
  static Expected<std::unique_ptr<Fleet>> Start(const FleetOptions& options);

  // Waits until the fleet is complete. May be called once, before the benchmark starts threads. kUnavailable, with the
  // output of the programs, if one of them has ended.
  Expected<Client> Connect();

  // CPU seconds of all servers so far.
  double ServerCpuSeconds() const;

 private:
  explicit Fleet(FleetOptions options) : options_(std::move(options)) {}
  Status StartScheduler();
  Status StartServers();
  // An error if one of the processes has ended.
  Status CheckAlive();

  FleetOptions options_;
  TemporaryFolder folder_;
  std::string scheduler_endpoint_;
  Child scheduler_;
  std::vector<Child> servers_;
};

}  // namespace tarn::bench

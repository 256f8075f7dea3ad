// A fleet for a benchmark: the real tarn-scheduler and tarn-server programs in processes of their own, waiting for one
// worker, which is the benchmark. Asynchronous consistency, nothing written to disk. One thread.
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
  std::string programs;           // the folder of tarn-scheduler and tarn-server
  std::string transport = "tcp";  // between worker and servers: tcp (loopback), ipc or shm
  std::uint32_t busy_poll_us = 0;
  std::uint32_t lanes = 1;    // fleet.lanes
  std::uint32_t servers = 1;  // of one shard each
};

class Fleet {
 public:
  // kUnavailable, with what the program said last, if one of them does not come up.
  static Expected<std::unique_ptr<Fleet>> Start(const FleetOptions& options);

  // Once, before the benchmark runs threads of its own.
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

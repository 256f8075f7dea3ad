// Tells the scheduler, from a thread beside a shard's, that the process lives while the shard loads its rows (rule N4):
// one heartbeat a period, over a connection that is used for nothing else. So a shard that loads for hours is heard,
// and one whose process is gone is not.
//
// Made and destroyed on one thread; the transport lives on the beacon's.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/message.h"
#include "core/types.h"
#include "net/zmq/transport.h"

namespace tarn::server {

class LoadingBeacon {
 public:
  struct Options {
    net::ZmqContext* context;  // outlives the beacon
    bool insecure = false;
    std::string scheduler;
    TimeUs period_us = 0;
    Message heartbeat;  // of view 0
  };
  // Sends nothing before the first period is over: most shards have nothing to load.
  explicit LoadingBeacon(Options options);
  ~LoadingBeacon();

 private:
  void Run();
  bool WaitForEnd();  // a period at most

  Options options_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};

// The heartbeat of a shard that has been welcomed by `welcome` and has not adopted a view yet.
Message LoadingHeartbeat(const Message& welcome);

}  // namespace tarn::server

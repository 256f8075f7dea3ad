// Sends heartbeats to the scheduler while a shard loads its rows (rule N4), from a separate thread and connection, once
// a period, so that a shard may load for hours without being declared dead.
//
// Construct and destroy it on one thread. The transport belongs to the beacon's thread.
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
  // Sends the first heartbeat after one period, because most shards have nothing to load. If the thread cannot be
  // started or the scheduler's endpoint is invalid, logs a warning and sends no heartbeats.
  explicit LoadingBeacon(Options options);
  // Ends the heartbeats, and waits for the thread to end.
  ~LoadingBeacon();

 private:
  void Run();
  bool WaitForEnd();  // waits at most one period; returns whether the beacon ends

  Options options_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};

// The heartbeat of a shard that has received `welcome` and has not adopted a view yet.
Message LoadingHeartbeat(const Message& welcome);

}  // namespace tarn::server

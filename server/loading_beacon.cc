#include "server/loading_beacon.h"

#include <pthread.h>

#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "core/log.h"

namespace tarn::server {
namespace {

constexpr std::size_t kReceiveMax = 64;

}  // namespace

LoadingBeacon::LoadingBeacon(Options options) : options_(std::move(options)) {
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& e) {
    LogWarning(
        "shard {}: cannot start the thread that sends heartbeats while rows are loaded, so the scheduler may declare "
        "this shard dead: {}",
        options_.heartbeat.sender.rank, e.what());
  }
}

LoadingBeacon::~LoadingBeacon() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool LoadingBeacon::WaitForEnd() {
  std::unique_lock lock(mutex_);
  return ends_.wait_for(lock, std::chrono::microseconds(options_.period_us), [this] { return ended_; });
}

void LoadingBeacon::Run() {
  pthread_setname_np(pthread_self(), "loading");
  if (WaitForEnd()) return;
  net::ZmqTransport transport(options_.context, {.insecure = options_.insecure, .linger_ms = 0, .shm = false});
  if (const Status connected = transport.Connect(kSchedulerPeer, options_.scheduler); !connected) {
    LogWarning(
        "shard {}: cannot connect to the scheduler to send heartbeats while rows are loaded, so it may declare this "
        "shard dead: {}",
        options_.heartbeat.sender.rank, connected.error().message);
    return;
  }
  std::vector<net::Received> answers;
  do {
    transport.Send(kSchedulerPeer, options_.heartbeat);
    answers.clear();
    transport.Receive(&answers, kReceiveMax, 0);
  } while (!WaitForEnd());
}

Message LoadingHeartbeat(const Message& message) {
  const Welcome& welcome = std::get<Welcome>(message.body);
  Message out;
  out.job = message.job;
  out.sender = {Role::kShard, welcome.rank, welcome.incarnation};
  out.body = Heartbeat{};
  return out;
}

}  // namespace tarn::server

// A real scheduler and real shards in this process, behind the transport of one worker, whose messages are handled
// while it receives. Time is simulated: it advances only when nothing else can happen.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/transport.h"
#include "scheduler/scheduler.h"
#include "server/shard/shard.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::testing {

class LocalFleet final : public net::Transport {
 public:
  explicit LocalFleet(const Job& job);
  ~LocalFleet() override;

  scheduler::Scheduler& scheduler() { return *scheduler_; }
  const server::Shard& shard(std::size_t i) const { return *shards_[i]; }
  // The number of messages of each kind that the worker has sent.
  const std::map<std::string, int>& sent() const { return sent_; }
  std::uint32_t connected_lanes() const { return connected_lanes_; }  // as of the last connection
  // Makes connections to shards fail.
  void RefuseShards(Error why) { no_shards_ = std::move(why); }
  // Suspends the scheduler: it receives and does nothing.
  void KillScheduler() { scheduler_dead_ = true; }
  // Stops the scheduler when the worker has sent its first message of that kind ("Join", ...).
  void StopAt(std::string kind) { stop_at_ = std::move(kind); }
  // Delays each message to the worker by this time, until it has sent its first message of that kind.
  void SlowUntil(std::string kind, std::chrono::milliseconds by) { slow_until_ = std::move(kind), slow_by_ = by; }
  // Delays acknowledgements of servers by this many calls of Receive.
  void DelayAcks(int calls) { ack_delay_ = calls; }
  std::size_t delayed_acks() const { return delayed_.size(); }
  // After the worker's end: runs until the scheduler and the shards have ended too. False: they do not end.
  bool Settle();

  Expected<std::string> Bind(const std::string& endpoint) override { return endpoint; }
  Status Connect(Peer peer, const std::string&) override {
    if (peer != kSchedulerPeer && no_shards_) return std::unexpected(*no_shards_);
    connected_lanes_ = lanes_;
    return {};
  }
  void SetLanes(std::uint32_t lanes) override { lanes_ = lanes; }
  void Send(Peer to, const Message& message) override;
  std::size_t Receive(std::vector<net::Received>* out, std::size_t max, std::int64_t timeout_us) override;
  void Wake() override;
  net::TransportCounters counters() const override { return {}; }

 private:
  // Nodes: 0 the scheduler, 1 the worker, 2 + i shard i.
  struct Mail {
    std::size_t to = 0;
    Peer from;
    Message message;
  };
  class Manifests;

  void RequestStop();
  void Post(std::size_t from, Outbox* out);
  void Deliver();
  void HandleCompletedWrites();
  void PassTime();

  TimeUs now_ = 0;
  std::unique_ptr<Manifests> manifests_;
  server::MemoryCheckpointFiles files_;
  std::vector<CheckpointPart> written_;  // by the shard in the current step
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  std::vector<std::unique_ptr<server::MemoryCheckpointStore>> stores_;
  std::vector<std::unique_ptr<server::Shard>> shards_;
  std::deque<Mail> mail_;
  std::deque<net::Received> inbox_;  // of the worker
  std::deque<std::pair<int, net::Received>> delayed_;
  int calls_ = 0, ack_delay_ = 0;
  std::map<std::string, int> sent_;
  std::string stop_at_, slow_until_;
  std::chrono::milliseconds slow_by_{0};
  std::uint32_t lanes_ = 1, connected_lanes_ = 0;
  bool scheduler_dead_ = false;
  std::optional<Error> no_shards_;

  std::mutex mutex_;  // guards woken_, because another thread may call Wake
  std::condition_variable changed_;
  bool woken_ = false;
};

}  // namespace tarn::testing

// The real scheduler in simulated time. It and the way to it take no simulated time; how long it takes on this machine
// is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/scheduler.h"
#include "sim/event_queue.h"

namespace tarn::scale {

class SchedulerModel {
 public:
  struct Hooks {
    // Hands a message over; called as an event of its own.
    std::function<void(Peer, Message)> deliver;
    // The rank of a worker, which gets views with its own entry only; nothing: a shard.
    std::function<std::optional<WorkerRank>(Peer)> worker_at;
  };
  // events outlives it.
  SchedulerModel(const Job& job, sim::EventQueue* events, Hooks hooks);

  void Start();
  // A message has come. Those of one turn of its loop are settled together.
  void Hear(Peer from, Message message);
  // Of this machine's time for a message, setting up included.
  double us_per_message() const { return messages_ > 0 ? seconds_ / messages_ * 1e6 : 0; }

 private:
  class NoStore final : public scheduler::SchedulerStore {
   public:
    void WriteManifest(CheckpointId, const std::string&, const Manifest&) override {}
    void RemoveCheckpoint(const std::string&) override {}
  };
  TimeUs NowUs() const { return events_->now() / 1000; }
  void Timer();
  void Settle();
  void Send(Outbox* out);
  void Shorten(Peer to, Body* body) const;

  sim::EventQueue* events_;
  Hooks hooks_;
  NoStore store_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  bool settles_ = false;  // a call of Settle is planned
  double seconds_ = 0, messages_ = 0;
};

}  // namespace tarn::scale

// The real scheduler in simulated time. It and its messages take no simulated time; its real time on this machine is
// measured.
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
    // Delivers a message; called as a separate event.
    std::function<void(Peer, Message)> deliver;
    // The rank of a worker, which gets views with only its own entry; nullopt: a shard.
    std::function<std::optional<WorkerRank>(Peer)> worker_at;
  };
  // `events` outlives this object.
  SchedulerModel(const Job& job, sim::EventQueue* events, Hooks hooks);

  void Start();
  // Receives a message. The messages of one turn are settled together.
  void Handle(Peer from, Message message);
  // Real time per message on this machine, including the messages of setup.
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
  void KeepOwnEntry(Peer to, Body* body) const;

  sim::EventQueue* events_;
  Hooks hooks_;
  NoStore store_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  bool settle_planned_ = false;  // a call of Settle is planned
  double seconds_ = 0, messages_ = 0;
};

}  // namespace tarn::scale

// Makes the scheduler's messages: adds the job, the sender and the epoch to a body.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/message.h"

namespace tarn::scheduler {

class Mailer {
 public:
  Mailer(std::uint64_t job, Outbox* out, Epoch epoch) : job_(job), epoch_(epoch), out_(out) {}

  void Send(Peer to, Body body) const {
    Message message;
    message.job = job_;
    message.sender = {.role = Role::kScheduler, .rank = 0, .incarnation = Incarnation(0)};
    message.epoch = epoch_;
    message.body = std::move(body);
    out_->push_back({to, std::move(message)});
  }
  // Sends a Shutdown to a process that is not, or no longer, part of the fleet.
  void Refuse(Peer to, ErrorCode code, std::string reason) const {
    Send(to, Shutdown{.code = code, .reason = std::move(reason)});
  }
  // Answers a process that must wait for its Welcome. A worker without any answer gives up.
  void AskToWait(Peer to) const { Send(to, HeartbeatAck{}); }

 private:
  std::uint64_t job_;
  Epoch epoch_;
  Outbox* out_;
};

}  // namespace tarn::scheduler

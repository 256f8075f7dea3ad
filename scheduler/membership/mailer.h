// Puts the scheduler's name on what it sends.
#pragma once

#include <cstdint>
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

 private:
  std::uint64_t job_;
  Epoch epoch_;
  Outbox* out_;
};

}  // namespace tarn::scheduler

// The current step of a shard: its time, and the outbox for its messages. Sets the sender of each message. Not
// thread-safe: the shard's thread owns it.
#pragma once

#include <cstdint>
#include <utility>

#include "core/message.h"
#include "core/types.h"

namespace tarn::server {

class ShardStep {
 public:
  explicit ShardStep(ShardId shard) : shard_(shard) {}

  // Begins a step; `out` outlives it. Nothing may be sent before the first step.
  void Begin(TimeUs now, Outbox* out) {
    now_ = now;
    out_ = out;
  }
  // Sets the sender of later messages, known from Welcome. Before that, job, incarnation and epoch are 0.
  void SetIdentity(std::uint64_t job, Incarnation incarnation) {
    job_ = job;
    incarnation_ = incarnation;
  }
  // Sets the route epoch of later messages: that of the shard's route map.
  void SetEpoch(Epoch epoch) { epoch_ = epoch; }

  TimeUs now() const { return now_; }
  ShardId shard() const { return shard_; }
  std::uint64_t job() const { return job_; }  // the job's fingerprint
  Epoch epoch() const { return epoch_; }

  // A message from this shard, to send now or later.
  Message Make(Body body) const {
    Message message;
    Fill(&message, std::move(body));
    return message;
  }
  void Send(Outgoing outgoing) { out_->push_back(std::move(outgoing)); }
  void Send(Peer to, Body body) {
    Outgoing& outgoing = out_->emplace_back();
    outgoing.to = to;
    Fill(&outgoing.message, std::move(body));
  }

 private:
  void Fill(Message* message, Body&& body) const {
    message->job = job_;
    message->sender = {Role::kShard, shard_.value, incarnation_};
    message->epoch = epoch_;
    message->body = std::move(body);
  }

  ShardId shard_;
  std::uint64_t job_ = 0;
  Incarnation incarnation_;
  Epoch epoch_;
  TimeUs now_ = 0;
  Outbox* out_ = nullptr;
};

}  // namespace tarn::server

// The current step of a shard: its time, and the outbox for its messages. Sets the sender of each message. A step may
// answer the pulls of all workers, so large messages are sent before its end. Therefore a step calls Send for a message
// with a payload only when everything that its earlier messages acknowledge is done. Not thread-safe: the shard's
// thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "core/message.h"
#include "core/types.h"

namespace tarn::server {

class ShardStep {
 public:
  static constexpr std::size_t kFlushBytes = std::size_t{32} << 10;  // default of ShardOptions::flush_bytes

  // `flush`, `flush_bytes`: as in ShardOptions.
  explicit ShardStep(ShardId shard, std::function<void()> flush = {}, std::size_t flush_bytes = kFlushBytes)
      : shard_(shard), flush_(std::move(flush)), flush_bytes_(flush_bytes) {}

  // Begins a step; `out` outlives it. Nothing may be sent before the first step.
  void Begin(TimeUs now, Outbox* out) {
    now_ = now;
    out_ = out;
    first_ = out->size();
    if (out->empty()) unsent_bytes_ = 0;
  }
  // Removes the messages of this step that are still in the outbox.
  void DropMessages() { out_->erase(out_->begin() + static_cast<std::ptrdiff_t>(first_), out_->end()); }
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
  void Send(Outgoing outgoing) {
    out_->push_back(std::move(outgoing));
    FlushIfLarge();
  }
  void Send(Peer to, Body body) {
    Outgoing& outgoing = out_->emplace_back();
    outgoing.to = to;
    Fill(&outgoing.message, std::move(body));
    FlushIfLarge();
  }

 private:
  void Fill(Message* message, Body&& body) const {
    message->job = job_;
    message->sender = {Role::kShard, shard_.value, incarnation_};
    message->epoch = epoch_;
    message->body = std::move(body);
  }

  void FlushIfLarge() {
    unsent_bytes_ += PayloadBytes(out_->back().message);
    if (unsent_bytes_ < flush_bytes_ || !flush_) return;
    unsent_bytes_ = 0;  // before `flush_`, which may throw
    flush_();
    first_ = 0;
  }

  ShardId shard_;
  std::function<void()> flush_;
  std::size_t flush_bytes_;
  std::size_t first_ = 0;         // messages in the outbox before those of this step
  std::size_t unsent_bytes_ = 0;  // of the messages in the outbox
  std::uint64_t job_ = 0;
  Incarnation incarnation_;
  Epoch epoch_;
  TimeUs now_ = 0;
  Outbox* out_ = nullptr;
};

}  // namespace tarn::server

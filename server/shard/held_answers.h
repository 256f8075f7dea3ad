// What a shard with a log has to say and may not say yet: it waits until the inputs behind it are durable (rule L1).
// Bounded, however long the disk takes (rule L7): of repetitions, and of all answers to workers once
// limits::kHeldAnswersMax wait, only the newest of each worker and partition is kept, since an acknowledgement
// acknowledges all earlier pushes too. Not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "core/limits.h"
#include "core/message.h"

namespace tarn::server {

class HeldAnswers {
 public:
  explicit HeldAnswers(std::size_t answers_max = limits::kHeldAnswersMax) : answers_max_(answers_max) {}

  // A message that leaves once record `until` is durable. Of one kind of message (to one peer) the oldest and the
  // newest are kept: the oldest leaves as soon as it may, however often newer ones come.
  void Add(LogSequence until, Outgoing outgoing);
  // A PushAck or a TickAck to a worker, likewise. first: what it answers changed the state; otherwise it is a
  // repetition or a refusal.
  void AddAnswer(LogSequence until, Outgoing outgoing, Incarnation worker, bool first);

  // Hands out what may leave, in order: messages as they came, then answers of which only the newest was kept, which
  // the caller makes into messages.
  void TakeDurable(LogSequence synced, const std::function<void(Outgoing)>& pass,
                   const std::function<void(Peer, Body)>& make);
  void Clear();
  std::size_t size() const { return queue_.size() + acks_.size() + ticks_.size(); }

 private:
  struct Held {
    LogSequence until;
    Outgoing outgoing;
  };
  struct HeldAck {
    LogSequence until;
    Peer to;
    RequestId request;
    SectionAck section;
  };
  struct HeldTick {
    LogSequence until;
    Peer to;
    Clock clock;
  };
  void AddSection(LogSequence until, Peer to, RequestId request, Incarnation worker, SectionAck section);

  std::size_t answers_max_;
  std::deque<Held> queue_;  // by `until`
  std::map<std::pair<Incarnation, PartitionId>, HeldAck> acks_;
  std::map<Incarnation, HeldTick> ticks_;
};

}  // namespace tarn::server

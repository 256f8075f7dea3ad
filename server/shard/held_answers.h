// Messages of a shard with a log that wait until the inputs they depend on are durable (rule L1). The number is
// bounded, however slow the disk is (rule L7): of repeated answers, and of all answers to workers once
// limits::kHeldAnswersMax wait, only the newest of each worker and partition is kept, which acknowledges all earlier
// pushes too. Not thread-safe.
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

  // Adds a message that is sent when record `until` is durable. Of one kind of message to one peer the oldest and the
  // newest are kept. The oldest is kept so that frequent newer ones do not delay it further.
  void Add(LogSequence until, Outgoing outgoing);
  // The same for a PushAck or a TickAck to a worker. `first`: the request changed the state; otherwise the answer is a
  // repetition or a rejection.
  void AddAnswer(LogSequence until, Outgoing outgoing, Incarnation worker, bool first);

  // Removes what may be sent: calls pass() for messages in order of arrival, then make() for the answers of which only
  // the newest was kept.
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
  std::deque<Held> queue_;  // in order of `until`
  std::map<std::pair<Incarnation, PartitionId>, HeldAck> acks_;
  std::map<Incarnation, HeldTick> ticks_;
};

}  // namespace tarn::server

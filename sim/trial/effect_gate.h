// Repeats the recorded order of a shard's effects: holds the messages of workers until it is their turn, and checks
// what the shard does with them. One thread.
//
//   gate.Hold(from, std::move(message));
//   while (auto next = gate.TakeNext()) shard->OnMessage(next->from, std::move(next->message), ...);
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/message.h"
#include "server/shard/effect.h"
#include "server/shard/shard_observer.h"

namespace tarn::sim {

class EffectGate final : public server::ShardObserver {
 public:
  // A message that waits, with its sender and its effect.
  struct Held {
    Peer from;
    server::Effect effect;
    Message message;
  };
  // `order` outlives the gate.
  explicit EffectGate(const std::vector<server::Effect>* order) : order_(order) {}

  // Whether messages of this kind have recorded effects. Others need no gate.
  static bool Concerns(const Message& message) { return server::EffectOf(message).has_value(); }
  void Hold(Peer from, Message message);
  // Returns the held message whose effect is the next of the order; of an open gate, the first held message. None if
  // there is no such message.
  std::optional<Held> TakeNext();
  // From now on messages pass in the order of their arrival.
  void Open() { open_ = true; }

  std::size_t done() const { return done_; }  // effects that were repeated
  bool complete() const { return done_ == order_->size(); }
  // The first difference from the record; empty: none.
  const std::string& difference() const { return difference_; }
  // What the gate waits for, for an error.
  std::string Waiting() const;

  void OnPushTaken(WorkerRank worker, const Push& push, std::size_t first_new) override;
  void OnPullServed(WorkerRank worker, Incarnation, const Pull& pull, Clock) override;
  void OnTick(WorkerRank worker, const Tick& tick) override;

 private:
  std::optional<Held> TakeFirst();
  void Match(const server::Effect& effect);

  const std::vector<server::Effect>* order_;
  std::size_t done_ = 0;
  std::deque<Held> held_;
  std::string difference_;
  bool open_ = false;
};

}  // namespace tarn::sim

// Ticks: each goes out only behind the acknowledgements of all earlier pushes, to every shard, until every shard has
// it. Proposals hold ticks back; a checkpoint at a clock takes the position that belongs to it. Rules C1, C5, M1, K1
// of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/client_pushes.h"
#include "worker/client/completion.h"

namespace tarn::worker {

class ClientTicks {
 public:
  ClientTicks(ClientContext* context, const ClientPushes* pushes) : context_(context), pushes_(pushes) {}

  void Begin(Clock start);
  // Clocks < clock are finished; done once every shard has the tick. Not ahead of asked(): done at once, and nothing
  // changes. No position: that of the tick asked for before.
  void Ask(Clock clock, const MaybePosition& position, Completion<>* done);
  void OnAck(ShardId from, Clock clock);
  // For errors that name no request. False: the shard owes no answer to a tick.
  bool OnError(ShardId from, const ErrorReply& error);
  void AdoptView();
  void OnTimer();
  TimeUs NextTimer() const;
  void Dispatch();
  void Reroute();  // what is not acknowledged goes to every shard again

  Clock asked() const { return asked_; }
  // A push of the clock that the worker is in was asked for.
  void OnPush() { pushed_ = asked_; }
  // While a proposal is open, no tick goes beyond this clock and no push is of a later one (a drain: nor of this one).
  Clock limit() const {
    if (drains_) return drain_to_.value_or(asked_);
    return capped_ ? proposal_clock_ + kProposalSlack : Clock(UINT64_MAX);
  }
  bool MayPush(Clock clock) const { return drains_ && drain_to_ ? clock < *drain_to_ : clock <= limit(); }
  // The newest proposal for which the worker has drained; 0: none.
  std::uint64_t drained() const { return drained_; }
  bool capped() const { return capped_; }  // a proposal is open
  Clock acked() const { return acked_; }   // by every shard
  const DataPosition& acked_position() const { return acked_position_; }
  // What a heartbeat reports: the newest proposal obeyed, and while that is open the clock at which it was.
  std::uint64_t proposal() const { return proposal_; }
  Clock reported() const { return capped_ ? proposal_clock_ : asked_; }
  // The worker's part of the view's checkpoint order, once its clock is reached.
  const std::optional<CheckpointPart>& part() const { return part_; }
  bool idle() const { return waiting_.empty(); }
  void FailAll(const Error& error);
  std::uint64_t Hash() const;

 private:
  struct Finished {
    Clock clock;
    DataPosition position;
    Completion<>* done = nullptr;
  };
  struct ShardState {
    Clock acked;
    TimeUs due = kNever;
    std::uint32_t repeats = 0, refusals = 0;
    RefusalTimer refusal_timer;
  };

  void Advance();
  void TakePart(const Finished& at);
  void BeginDrain();
  void NoteDrained();
  void Transmit(ShardId shard);
  bool Held(Clock clock) const;

  ClientContext* context_;
  const ClientPushes* pushes_;
  Clock asked_, sent_, acked_;
  DataPosition asked_position_, sent_position_, acked_position_;
  std::deque<Finished> waiting_;  // asked for, not yet acknowledged by every shard
  std::vector<ShardState> shards_;
  std::uint64_t proposal_ = 0;
  Clock proposal_clock_;
  bool capped_ = false;
  bool drains_ = false;
  std::optional<Clock> drain_to_;  // of a drain: where it ends; nothing: at the next tick
  std::optional<Clock> pushed_;    // the newest clock of which there is a push
  std::uint64_t drained_ = 0;
  std::optional<CheckpointPart> part_;
};

}  // namespace tarn::worker

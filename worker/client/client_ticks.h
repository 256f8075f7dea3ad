// Ticks: sends each tick to every shard after all earlier pushes are acknowledged, and repeats it until every shard has
// acknowledged it. Proposals delay ticks. A checkpoint at a clock uses the data position of the tick to that clock.
// Rules C1, C5, M1, K1 of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/client_pushes.h"
#include "worker/client/completion.h"
#include "worker/client/tick_bound.h"

namespace tarn::worker {

class ClientTicks {
 public:
  ClientTicks(ClientContext* context, const ClientPushes* pushes) : context_(context), pushes_(pushes) {}

  void Begin(Clock start);
  // Requests a tick: clocks < clock are finished. `done` completes when every shard has acknowledged the tick, or at
  // once if clock <= asked(). Without a position, the tick has that of the previous one.
  void Ask(Clock clock, const MaybePosition& position, Completion<>* done);
  // Rule C8: rows for `use` have arrived, and `open` is the open clock of their table, which has backup workers.
  void NoteOpen(Clock use, Clock open);
  // The clock for which rows that are used at `clock` were pulled: an earlier one if they came late.
  Clock PulledFor(Clock clock) const { return clock == asked_ && clock == skipped_to_ ? skipped_from_ : clock; }
  void OnAck(ShardId from, Clock clock);
  // Handles errors that name no request. False: no tick to this shard is unanswered.
  bool OnError(ShardId from, const ErrorReply& error);
  // mid_clock, OnRest: see TickBound.
  void AdoptView(bool mid_clock);
  void OnRest();
  void OnTimer();
  TimeUs NextTimer() const;
  void Dispatch();
  void Reroute();  // after a newer route map: sends unacknowledged ticks to every shard again

  Clock asked() const { return asked_; }
  // Must be called when a push of the current clock is requested.
  void OnPush() { bound_.OnPush(asked_); }
  bool MayPush(Clock clock) const { return bound_.MayPush(clock, asked_); }
  // What the open proposal allows.
  const TickBound& bound() const { return bound_; }
  // For heartbeats: while a proposal is open, the clock at which the worker began to obey it; else asked().
  Clock reported() const { return bound_.open() ? bound_.clock() : asked_; }
  Clock acked() const { return acked_; }  // acknowledged by every shard
  const DataPosition& acked_position() const { return acked_position_; }
  // The worker's part of the view's checkpoint order; set when its clock is reached.
  const std::optional<CheckpointPart>& part() const { return part_; }
  bool idle() const { return waiting_.empty(); }
  // Whether the shard has not acknowledged the last tick that was sent.
  bool Unanswered(ShardId shard) const { return shard.value < shards_.size() && shards_[shard.value].due != kNever; }
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

  void SkipTo(Clock clock);
  void SetDue(ShardState* shard, TimeUs due);
  void FindLeast();
  void Advance();
  void TakePart(const Finished& at);
  void NoteDrained();
  void Transmit(ShardId shard);
  bool Held(Clock clock) const;  // a tick to this clock must not be sent yet

  ClientContext* context_;
  const ClientPushes* pushes_;
  Clock asked_, sent_, acked_;
  Clock open_;                       // the latest of NoteOpen
  Clock skipped_from_, skipped_to_;  // of the last skip: the clock for which the rows came late, and the clock after it
  DataPosition asked_position_, sent_position_, acked_position_;
  std::deque<Finished> waiting_;  // requested and not yet acknowledged by every shard
  std::vector<ShardState> shards_;
  Clock least_;                   // the lowest `acked` of the shards
  std::size_t least_shards_ = 0;  // number of shards that have acknowledged no more
  TimeUs earliest_due_ = kNever;  // no shard is due earlier
  TickBound bound_;
  std::optional<CheckpointPart> part_;
};

}  // namespace tarn::worker

#include "worker/client/client_ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"

namespace tarn::worker {

void ClientTicks::Begin(Clock start) {
  asked_ = sent_ = acked_ = start;
  shards_.assign(context_->shards(), {start});
  FindLeast();
}

void ClientTicks::SetDue(ShardState* shard, TimeUs due) {
  shard->due = due;
  earliest_due_ = std::min(earliest_due_, due);
}

void ClientTicks::FindLeast() {
  least_ = std::ranges::min(shards_, {}, &ShardState::acked).acked;
  least_shards_ = static_cast<std::size_t>(std::ranges::count(shards_, least_, &ShardState::acked));
}

void ClientTicks::Ask(Clock clock, const MaybePosition& position, Completion<>* done) {
  if (clock <= asked_) return Complete(done);
  asked_ = clock;
  bound_.OnAsk(clock);
  if (position) asked_position_ = *position;
  waiting_.push_back({clock, asked_position_, done});
  SkipTo(open_);
}

void ClientTicks::NoteOpen(Clock use, Clock open) {
  open_ = std::max(open_, open);
  const Clock from = PulledFor(asked_);
  if (open_ <= asked_ || (use != asked_ && use != from)) return;
  SkipTo(open_);
  skipped_from_ = from;
  skipped_to_ = asked_;
}

// Requests a heartbeat at once: the scheduler adds skipped clocks to the ceiling of the training epoch (C8, D4), at
// which other workers may wait.
void ClientTicks::SkipTo(Clock clock) {
  if (clock <= asked_) return;
  context_->counters.skipped_clocks += clock.value - asked_.value;
  context_->wants_heartbeat = true;
  if (context_->options.on_skip) context_->options.on_skip(clock.value - asked_.value);
  Ask(clock, {}, nullptr);
}

bool ClientTicks::Held(Clock clock) const { return clock > bound_.limit(asked_) || !pushes_->AllAckedBefore(clock); }

// Sends the newest tick that is allowed; it replaces older ones.
void ClientTicks::Dispatch() {
  const Finished* newest = nullptr;
  for (const Finished& finished : waiting_) {
    if (finished.clock <= sent_) continue;
    if (Held(finished.clock)) break;
    newest = &finished;
  }
  if (newest == nullptr || context_->paused()) return;
  sent_ = newest->clock;
  sent_position_ = newest->position;
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    shards_[i].repeats = 0;
    Transmit(ShardId(i));
  }
}

void ClientTicks::Transmit(ShardId shard) {
  ShardState& state = shards_[shard.value];
  Tick tick{sent_, sent_position_, {}};
  for (const Finished& finished : waiting_) {
    if (finished.clock >= sent_) break;
    if (tick.earlier.size() == limits::kTicksKeptMax) tick.earlier.erase(tick.earlier.begin());
    tick.earlier.push_back({finished.clock, finished.position});
  }
  context_->Send(ShardPeer(shard), std::move(tick));
  SetDue(&state, context_->now + RepeatPause(context_->options.resend_us, state.repeats));
}

void ClientTicks::OnAck(ShardId from, Clock clock) {
  ShardState& state = shards_[from.value];
  if (clock > sent_ || clock <= state.acked) return;
  const bool was_least = state.acked == least_;
  state.acked = clock;
  state.repeats = state.refusals = 0;
  state.refusal_timer.Progress();
  if (clock == sent_) state.due = kNever;
  if (!was_least || --least_shards_ != 0) return;
  FindLeast();
  Advance();
}

bool ClientTicks::OnError(ShardId from, const ErrorReply& error) {
  ShardState& state = shards_[from.value];
  if (state.due == kNever) return false;
  // kMalformed may concern any of our messages.
  const bool final = RefusalOf(error.code) == Refusal::kFinal && error.code != ErrorCode::kMalformed;
  if (final || context_->GivesUp(&state.refusal_timer)) {
    const std::string what = fmt::format("the tick to clock {}", sent_.value);
    context_->Stop(error.code, context_->RefusalText(from, what, error.message,
                                                     final ? context_->now : state.refusal_timer.since()));
    return true;
  }
  SetDue(&state, std::min(state.due, context_->now + RefusalPause(context_->options.resend_us, state.refusals++)));
  return true;
}

// Completes the ticks that every shard has acknowledged.
void ClientTicks::Advance() {
  while (!waiting_.empty() && waiting_.front().clock <= least_) {
    const Finished finished = waiting_.front();
    waiting_.pop_front();
    acked_ = finished.clock;
    acked_position_ = finished.position;
    TakePart(finished);
    Complete(finished.done);
  }
  NoteDrained();
}

void ClientTicks::NoteDrained() {
  if (bound_.NoteDrained(acked_)) context_->wants_heartbeat = true;
}

// The position for the order's clock is that of the first tick that reaches it. Later ticks, which may already be
// requested, do not belong to the checkpoint.
void ClientTicks::TakePart(const Finished& at) {
  const CheckpointOrder& order = context_->view.checkpoint;
  if (order.id.value == 0 || !order.at_clock || part_ || at.clock < order.clock) return;
  part_.emplace();
  part_->id = order.id;
  part_->clock = part_->max_clock = at.clock;
  part_->position = at.position;
}

void ClientTicks::OnRest() {
  if (bound_.OnRest(asked_)) NoteDrained();
}

void ClientTicks::AdoptView(bool mid_clock) {
  if (bound_.Adopt(context_->view.proposal, asked_, mid_clock)) NoteDrained();
  if (part_ && part_->id != context_->view.checkpoint.id) part_.reset();
  TakePart({.clock = acked_, .position = acked_position_});
}

void ClientTicks::FailAll(const Error& error) {
  for (Finished& finished : waiting_) Fail(std::exchange(finished.done, nullptr), error);
}

void ClientTicks::OnTimer() {
  if (context_->paused() || earliest_due_ > context_->now) return;
  earliest_due_ = kNever;
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].due > context_->now) {
      SetDue(&shards_[i], shards_[i].due);
      continue;
    }
    ++shards_[i].repeats;
    ++context_->counters.repeats;
    Transmit(ShardId(i));
  }
}

// While paused, it continues with the scheduler's next message.
TimeUs ClientTicks::NextTimer() const { return context_->paused() ? kNever : earliest_due_; }

void ClientTicks::Reroute() {
  shards_.resize(context_->shards(), {context_->welcome.start_clock});
  FindLeast();
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    shards_[i].refusal_timer.Progress();
    if (shards_[i].acked < sent_) Transmit(ShardId(i));
  }
}

std::uint64_t ClientTicks::Hash() const {
  std::uint64_t hash = HashCombine(asked_.value, sent_.value);
  hash = HashCombine(HashCombine(HashCombine(hash, acked_.value), bound_.id()), bound_.drained());
  for (const ShardState& state : shards_) hash = HashCombine(HashCombine(hash, state.acked.value), state.due);
  return hash;
}

}  // namespace tarn::worker

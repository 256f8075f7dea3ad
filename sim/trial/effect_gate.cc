#include "sim/trial/effect_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::sim {
namespace {

using Kind = server::Effect::Kind;

bool IsTickOf(const server::Effect& effect, WorkerRank worker) {
  return effect.kind == Kind::kTick && effect.worker == worker;
}

// Whether `later` replaces a message that is held. A worker may resend a push with another request id, and its newest
// tick includes all earlier ones.
bool Replaces(const EffectGate::Held& held, const EffectGate::Held& later) {
  switch (later.effect.kind) {
    case Kind::kTick: return IsTickOf(held.effect, later.effect.worker);
    case Kind::kPush: return held.effect == later.effect;
    case Kind::kPull:
      return held.effect == later.effect &&
             std::get<Pull>(held.message.body).request == std::get<Pull>(later.message.body).request;
  }
  return false;
}

// The tick to an earlier clock that `tick` includes.
Tick EarlierTick(Tick tick, Clock clock) {
  for (const TickPoint& point : tick.earlier)
    if (point.clock == clock) tick.position = point.position;
  std::erase_if(tick.earlier, [&](const TickPoint& point) { return point.clock >= clock; });
  tick.clock = clock;
  return tick;
}

}  // namespace

void EffectGate::Hold(Peer from, Message message) {
  Held later{from, *server::EffectOf(message), std::move(message)};
  std::erase_if(held_, [&](const Held& held) { return Replaces(held, later); });
  held_.push_back(std::move(later));
}

// A worker sends only its newest tick, which may be beyond the one that is recorded as next.
std::optional<EffectGate::Held> EffectGate::TakeNext() {
  if (open_) return TakeFirst();
  if (complete()) return std::nullopt;
  const server::Effect& wanted = (*order_)[done_];
  const auto next = std::ranges::find_if(held_, [&](const Held& held) {
    return held.effect == wanted ||
           (wanted.kind == Kind::kTick && IsTickOf(held.effect, wanted.worker) && held.effect.at > wanted.at);
  });
  if (next == held_.end()) return std::nullopt;
  if (next->effect != wanted) {
    Held earlier = *next;
    earlier.effect = wanted;
    earlier.message.body = EarlierTick(std::get<Tick>(next->message.body), Clock(wanted.at));
    return earlier;
  }
  Held taken = std::move(*next);
  held_.erase(next);
  return taken;
}

std::optional<EffectGate::Held> EffectGate::TakeFirst() {
  if (held_.empty()) return std::nullopt;
  Held first = std::move(held_.front());
  held_.pop_front();
  return first;
}

std::string EffectGate::Waiting() const {
  std::string text = fmt::format("{} of {} effects were repeated", done_, order_->size());
  if (!complete()) text += fmt::format("; next is '{}'", ToLine((*order_)[done_]));
  for (const Held& held : held_) text += fmt::format("; here is '{}'", ToLine(held.effect));
  return text;
}

void EffectGate::OnPushTaken(WorkerRank worker, const Push& push, std::size_t first_new) {
  Match(server::EffectOf(worker, push, first_new));
}
void EffectGate::OnPullServed(WorkerRank worker, Incarnation, const Pull& pull, Clock) {
  Match(server::EffectOf(worker, pull));
}
void EffectGate::OnTick(WorkerRank worker, const Tick& tick) { Match(server::EffectOf(worker, tick)); }

void EffectGate::Match(const server::Effect& effect) {
  if (open_) return;
  if (!complete() && (*order_)[done_] == effect) {
    ++done_;
    return;
  }
  if (difference_.empty())
    difference_ = fmt::format("effect {} is '{}', expected {}", done_ + 1, ToLine(effect),
                              complete() ? "none" : fmt::format("'{}'", ToLine((*order_)[done_])));
}

}  // namespace tarn::sim

#include "worker/client/client_pulls.h"

#include <algorithm>

#include "core/hash.h"

namespace tarn::worker {

RequestId ClientPulls::Begin(const Plan& plan, const TableSpec& spec, PullWhen when,
                             std::unique_ptr<CachedPull> cached) {
  const RequestId id = desk_->NewRequest();
  ++desk_->counters.pulls;
  if (plan.keys.empty()) {
    desk_->events.push_back(PullDone{id, {}, 0});
    return id;
  }
  Assembly& pull = Assemble(id, plan, spec, when);
  if (cached != nullptr) pull.staleness = cached->staleness;
  pull.cached = std::move(cached);
  return id;
}

RequestId ClientPulls::BeginPart(const Plan& plan, const TableSpec& spec, PullWhen when) {
  TARN_CHECK(!plan.keys.empty(), "a part of a pull has rows");
  const RequestId id = desk_->NewRequest();
  Assemble(id, plan, spec, when).counted = false;
  return id;
}

ClientPulls::Assembly& ClientPulls::Assemble(RequestId id, const Plan& plan, const TableSpec& spec, PullWhen when) {
  Assembly& pull = pulls_[id];
  pull.table = spec.id;
  pull.dim = spec.dim;
  pull.clock = when.use;
  pull.priority = when.priority;
  pull.codec = spec.pull_codec;
  pull.rows = plan.keys.size();
  return pull;
}

RequestId ClientPulls::Answered(CachedPull* cached) {
  const RequestId id = desk_->NewRequest();
  ++desk_->counters.pulls;
  desk_->CountStaleness(cached->staleness);
  desk_->events.push_back(PullDone{id, cached->TakeRows(), cached->staleness});
  return id;
}

RequestId ClientPulls::Add(RequestId pull, Piece piece, KeyList keys, Buffer keys_frame) {
  Assembly& whole = pulls_.at(pull);
  ++whole.pieces;
  const RequestId id = desk_->NewRequest();
  Ask ask;
  ask.pull = pull;
  ask.clock = whole.clock;
  ask.shard = piece.shard;
  ask.parts = std::move(piece.parts);
  ask.bytes = kMessageOverheadBytes + keys_frame.size() + piece.rows * CodecRowBytes(whole.codec, whole.dim);
  ask.keys = std::move(keys);
  ask.frame = std::move(keys_frame);
  LaneOf(ask.shard).queue.insert(TurnOf(id, ask));
  asks_.emplace(id, std::move(ask));
  return id;
}

ClientPulls::Lane& ClientPulls::LaneOf(ShardId shard) {
  while (lanes_.size() <= shard.value) lanes_.emplace_back(desk_->options.credit_bytes / 2);
  return lanes_[shard.value];
}

// Besides what fits, a pull always may go when none of its clock or an earlier one is under way: a shard may hold
// back the others until something that waits for this one has happened.
bool ClientPulls::MaySend(const Lane& lane, const Ask& ask) const {
  return lane.credit.Fits(ask.bytes) || lane.in_flight.empty() || lane.in_flight.begin()->first > ask.clock;
}

void ClientPulls::Launch(RequestId id, Ask* ask) {
  Lane& lane = LaneOf(ask->shard);
  lane.queue.erase(TurnOf(id, *ask));
  lane.credit.Take(ask->bytes);
  ++lane.in_flight[ask->clock];
  ask->sent = true;
  SetDue(id, ask, desk_->now + RepeatPause(desk_->options.resend_us, ask->repeats));
}

void ClientPulls::Transmit(RequestId id, Ask* ask) {
  const Assembly& whole = pulls_.at(ask->pull);
  Pull pull{id, whole.table, whole.clock, whole.codec, ask->keys};
  Buffer frame = ask->frame;
  desk_->lists.Dress(ask->shard, &pull.keys, &frame);
  ask->by_name = pull.keys.codec == KeyCodec::kHeld;
  if (!ask->counted) desk_->counters.pull_bytes += frame.size();
  ask->counted = true;
  desk_->Send(ShardPeer(ask->shard), std::move(pull), std::move(frame));
}

void ClientPulls::SetDue(RequestId id, Ask* ask, TimeUs due) {
  if (ask->due != kNever) timers_.erase({ask->due, id});
  ask->due = due;
  if (due != kNever) timers_.emplace(due, id);
}

// Takes a message out of its lane, wherever it is.
void ClientPulls::Release(RequestId id, Ask* ask) {
  Lane& lane = LaneOf(ask->shard);
  SetDue(id, ask, kNever);
  if (!ask->sent) {
    lane.queue.erase(TurnOf(id, *ask));
    return;
  }
  lane.credit.Return(ask->bytes);
  const auto count = lane.in_flight.find(ask->clock);
  if (--count->second == 0) lane.in_flight.erase(count);
}

bool ClientPulls::Claim(RequestId message, bool by_name, Claimed* claimed) {
  const auto it = asks_.find(message);
  if (it == asks_.end() || it->second.sent || !MaySend(LaneOf(it->second.shard), it->second)) return false;
  const Assembly& whole = pulls_.at(it->second.pull);
  *claimed = {message, whole.clock, whole.codec};
  it->second.by_name = by_name;
  Launch(message, &it->second);
  return true;
}

void ClientPulls::Dispatch() {
  for (Lane& lane : lanes_) {
    while (!lane.queue.empty()) {
      const RequestId id = lane.queue.begin()->id;
      Ask& ask = asks_.at(id);
      if (!MaySend(lane, ask)) break;
      Launch(id, &ask);
      Transmit(id, &ask);
    }
  }
}

// The answer's rows into their places. One that is all of the pull, in its order, becomes what the caller gets.
bool ClientPulls::TakeRows(const Ask& ask, const PullReply& reply, const Buffer& values, Assembly* whole) {
  const std::size_t bytes = whole->rows * whole->dim * sizeof(float);
  if (reply.codec == ValueCodec::kFp32 && values.size() == bytes && !values.lent() &&
      IsWholePlan(ask.parts, whole->rows)) {
    whole->values = values;
    return true;
  }
  if (whole->values.empty()) whole->values = Buffer::Allocate(bytes);
  return DecodeRows(values, whole->dim, ask.parts, reply.codec, whole->values.as_mutable<float>());
}

void ClientPulls::OnReply(ShardId from, const PullReply& reply, const Buffer& values) {
  const auto it = asks_.find(reply.request);
  if (it == asks_.end() || it->second.shard != from) return;  // late or repeated
  Ask& ask = it->second;
  Assembly& whole = pulls_.at(ask.pull);
  if (reply.table != whole.table || reply.count != ask.keys.count || !TakeRows(ask, reply, values, &whole)) {
    ++desk_->counters.malformed;
    return Refused(it->first, &ask, {ErrorCode::kMalformed, "its answer does not fit the question"});
  }
  if (whole.clock > reply.min_clock)
    whole.staleness = std::max(whole.staleness, whole.clock.value - reply.min_clock.value);
  desk_->counters.pull_bytes += values.size();
  desk_->lists.OnHeld(from, ask.keys.list);
  if (whole.cached != nullptr) whole.cached->Keep(ask.keys, ask.frame, ask.parts, whole.values, reply.min_clock);
  const RequestId pull = ask.pull;
  Release(it->first, &ask);
  asks_.erase(it);
  if (--whole.pieces == 0) Finish(pull);
}

void ClientPulls::Finish(RequestId pull) {
  Assembly& whole = pulls_.at(pull);
  if (whole.cached != nullptr) whole.values = whole.cached->Join(std::move(whole.values));
  if (whole.counted) desk_->CountStaleness(whole.staleness);
  desk_->events.push_back(PullDone{pull, std::move(whole.values), whole.staleness});
  pulls_.erase(pull);
}

bool ClientPulls::OnError(ShardId from, const ErrorReply& error) {
  const auto it = asks_.find(error.request);
  if (it == asks_.end() || it->second.shard != from) return false;
  Ask& ask = it->second;
  if (error.code == ErrorCode::kUnknownKeys && ask.by_name) {
    ++desk_->counters.repeats;
    desk_->counters.pull_bytes += ask.frame.size();
    Transmit(it->first, &ask);  // with its keys now
  } else if (Judge(error.code) == Verdict::kRetry) {
    Refused(it->first, &ask, {error.code, error.message});
  } else {
    Fail(ask, {error.code, error.message}, desk_->now);
  }
  return true;
}

// A refusal that may pass, or has lasted too long. A full shard empties: nobody gives up over that.
void ClientPulls::Refused(RequestId id, Ask* ask, const Error& error) {
  if (error.code == ErrorCode::kOverloaded || !desk_->GivesUp(&ask->patience))
    return RetryAfter(id, RefusalPause(desk_->options.resend_us, ask->refusals++));
  Fail(*ask, error, ask->patience.since());
}

void ClientPulls::Fail(const Ask& ask, const Error& error, TimeUs since) {
  const RequestId pull = ask.pull;
  const std::string what = "a pull of " + desk_->NameOf(pulls_.at(pull).table);
  desk_->events.push_back(RequestFailed{pull, {error.code, desk_->Refusal(ask.shard, what, error.message, since)}});
  Drop(pull);
}

void ClientPulls::Drop(RequestId pull) {
  for (auto it = asks_.begin(); it != asks_.end();) {
    if (it->second.pull != pull) {
      ++it;
      continue;
    }
    Release(it->first, &it->second);
    it = asks_.erase(it);
  }
  pulls_.erase(pull);
}

void ClientPulls::RetryAfter(RequestId message, TimeUs pause) {
  const auto it = asks_.find(message);
  if (it == asks_.end() || !it->second.sent) return;
  SetDue(message, &it->second, std::min(it->second.due, desk_->now + pause));
}

void ClientPulls::OnTimer() {
  while (!timers_.empty() && timers_.begin()->first <= desk_->now) {
    const RequestId id = timers_.begin()->second;
    Ask& ask = asks_.at(id);
    ++desk_->counters.repeats;
    Transmit(id, &ask);
    SetDue(id, &ask, desk_->now + RepeatPause(desk_->options.resend_us, ++ask.repeats));
  }
}

TimeUs ClientPulls::NextTimer() const { return timers_.empty() ? kNever : timers_.begin()->first; }

// Queues a message anew, cut where its partitions have different owners now.
void ClientPulls::Requeue(RequestId id, Ask ask) {
  std::map<ShardId, std::vector<std::uint32_t>> by_owner;
  for (std::uint32_t i = 0; i < ask.keys.sections.size(); ++i)
    by_owner[desk_->OwnerOf(ask.keys.sections[i].partition)].push_back(i);
  if (ask.sent) ++desk_->counters.repeats;
  ask.sent = false;
  ask.patience.Progress();
  if (by_owner.size() == 1) {
    ask.shard = by_owner.begin()->first;
    LaneOf(ask.shard).queue.insert(TurnOf(id, ask));
    asks_.emplace(id, std::move(ask));
    return;
  }
  Assembly& whole = pulls_.at(ask.pull);
  --whole.pieces;
  for (const auto& [owner, which] : by_owner) {
    Piece piece{.shard = owner, .parts = {}, .rows = 0};
    for (std::uint32_t i : which) {
      piece.parts.push_back(ask.parts[i]);
      piece.rows += ask.parts[i].count;
    }
    Buffer frame;
    KeyList keys = SelectKeys(ask.keys, ask.frame, which, &frame);
    Add(ask.pull, std::move(piece), std::move(keys), std::move(frame));
  }
}

void ClientPulls::Reroute() {
  std::map<RequestId, Ask> old;
  old.swap(asks_);
  for (auto& [id, ask] : old) SetDue(id, &ask, kNever);
  lanes_.clear();
  for (auto& [id, ask] : old) Requeue(id, std::move(ask));
}

std::uint64_t ClientPulls::Hash() const {
  std::uint64_t hash = pulls_.size();
  for (const auto& [id, pull] : pulls_) hash = HashCombine(HashCombine(hash, id.value), pull.pieces);
  for (const auto& [id, ask] : asks_) hash = HashCombine(HashCombine(hash, id.value), ask.due);
  return hash;
}

}  // namespace tarn::worker

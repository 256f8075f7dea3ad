#include "worker/client/client_pulls.h"

#include <algorithm>

#include "core/hash.h"

namespace tarn::worker {

RequestId ClientPulls::Begin(const Plan& plan, const TableSpec& spec, const PullWhen& when, PullSink* sink,
                             std::shared_ptr<PullRecord> record, std::unique_ptr<CachedPull> cached) {
  TARN_CHECK(!plan.keys.empty(), "a pull has rows");
  const RequestId id = context_->NewRequest();
  PullState& pull = pulls_[id];
  pull.table = spec.id;
  pull.dim = spec.dim;
  pull.clock = when.use;
  pull.priority = when.priority;
  pull.counted = when.counted;
  pull.codec = spec.pull_codec;
  pull.sink = sink;
  pull.staleness = cached == nullptr ? 0 : cached->StalenessAt(when.use);
  pull.record = std::move(record);
  pull.caches_rows = cached != nullptr || !when.counted;
  pull.cached = std::move(cached);
  return id;
}

RequestId ClientPulls::BeginStanding(const Plan& plan, const TableSpec& spec, Clock use,
                                     std::unique_ptr<CachingSink> sink) {
  const RequestId id = Begin(plan, spec, {.use = use, .counted = false, .pushed = false}, sink.get(), nullptr);
  PullState& pull = pulls_.at(id);
  pull.cached = std::move(sink);
  pull.standing = true;
  ++standing_;
  return id;
}

RequestId ClientPulls::Add(RequestId pull, Piece piece, KeyList keys, Buffer keys_frame) {
  PullState& whole = pulls_.at(pull);
  ++whole.pieces;
  const RequestId id = context_->NewRequest();
  PullMessage message;
  message.pull = pull;
  message.clock = whole.clock;
  message.standing = whole.standing;
  message.shard = piece.shard;
  message.parts = std::move(piece.parts);
  message.bytes = kMessageOverheadBytes + keys_frame.size() + piece.rows * CodecRowBytes(whole.codec, whole.dim);
  message.keys = std::move(keys);
  message.frame = std::move(keys_frame);
  QueueOf(message.shard).waiting.insert(TurnOf(id, message));
  messages_.emplace(id, std::move(message));
  return id;
}

ClientPulls::ShardQueue& ClientPulls::QueueOf(ShardId shard) {
  while (queues_.size() <= shard.value) queues_.emplace_back(context_->options.credit_bytes / 2);
  return queues_[shard.value];
}

// A pull may be sent if its credit allows, and always if no pull of its clock or an earlier one is in flight: a shard
// may delay the pulls in flight until an event that depends on this pull. A standing pull is always in flight, so it
// takes no credit from others; there is one for each table.
bool ClientPulls::MaySend(const ShardQueue& queue, const PullMessage& message) const {
  return message.standing || queue.credit.Fits(message.bytes) || queue.in_flight.empty() ||
         queue.in_flight.begin()->first > message.clock;
}

void ClientPulls::Launch(RequestId id, PullMessage* message) {
  ShardQueue& queue = QueueOf(message->shard);
  queue.waiting.erase(TurnOf(id, *message));
  message->sent = true;
  if (!message->standing) {
    queue.credit.Take(message->bytes);
    ++queue.in_flight[message->clock];
  }
  SetDue(id, message, context_->now + RepeatPause(context_->options.resend_us, message->repeats));
}

void ClientPulls::Transmit(RequestId id, PullMessage* message) {
  const PullState& whole = pulls_.at(message->pull);
  Pull pull{id, whole.table, whole.clock, whole.codec, message->keys};
  Buffer frame = message->frame;
  lists_->Encode(message->shard, &pull.keys, &frame);
  message->by_name = pull.keys.codec == KeyCodec::kHeld;
  if (!message->counted) context_->counters.pull_bytes += frame.size();
  message->counted = true;
  context_->Send(ShardPeer(message->shard), std::move(pull), std::move(frame));
}

void ClientPulls::SetDue(RequestId id, PullMessage* message, TimeUs due) {
  if (message->due != kNever) timers_.erase({message->due, id});
  message->due = due;
  if (due != kNever) timers_.emplace(due, id);
}

// Takes a message out of its queue, or out of flight.
void ClientPulls::Release(RequestId id, PullMessage* message) {
  ShardQueue& queue = QueueOf(message->shard);
  SetDue(id, message, kNever);
  if (!message->sent) {
    queue.waiting.erase(TurnOf(id, *message));
    return;
  }
  if (message->standing) return;
  queue.credit.Return(message->bytes);
  const auto count = queue.in_flight.find(message->clock);
  if (--count->second == 0) queue.in_flight.erase(count);
}

bool ClientPulls::Claim(RequestId message, bool by_name, Claimed* claimed) {
  const auto it = messages_.find(message);
  if (it == messages_.end() || it->second.sent || !MaySend(QueueOf(it->second.shard), it->second)) return false;
  const PullState& whole = pulls_.at(it->second.pull);
  *claimed = {message, whole.clock, whole.codec};
  it->second.by_name = by_name;
  Launch(message, &it->second);
  return true;
}

void ClientPulls::Dispatch() {
  for (ShardQueue& queue : queues_) {
    while (!queue.waiting.empty()) {
      const RequestId id = queue.waiting.begin()->id;
      PullMessage& message = messages_.at(id);
      if (!MaySend(queue, message)) break;
      Launch(id, &message);
      Transmit(id, &message);
    }
  }
}

void ClientPulls::OnReply(ShardId from, const PullReply& reply, const Buffer& values) {
  const auto it = messages_.find(reply.request);
  if (it == messages_.end() || it->second.shard != from) return;  // late or repeated
  PullMessage& message = it->second;
  PullState& whole = pulls_.at(message.pull);
  const std::size_t bytes = message.keys.count * CodecRowBytes(reply.codec, whole.dim);
  if (reply.table != whole.table || reply.count != message.keys.count || values.size() != bytes ||
      reply.versions.size() != message.keys.sections.size()) {
    ++context_->counters.malformed;
    return Refused(it->first, &message, {ErrorCode::kMalformed, "its reply does not match the request"});
  }
  whole.open = std::max(whole.open, reply.min_clock);
  if (whole.clock > reply.min_clock)
    whole.staleness = std::max(whole.staleness, whole.clock.value - reply.min_clock.value);
  context_->counters.pull_bytes += values.size();
  lists_->OnHeld(from, message.keys.list);
  Note(whole, message, reply, values);
  whole.sink->Rows({message.parts, reply.codec, values});
  if (whole.cached != nullptr) whole.cached->Cache(message.parts, message.keys.sections, reply.min_clock);
  const RequestId pull = message.pull;
  Release(it->first, &message);
  messages_.erase(it);
  if (--whole.pieces == 0) Finish(pull);
}

// Notes what a push of the same rows needs.
void ClientPulls::Note(const PullState& pull, const PullMessage& message, const PullReply& reply,
                       const Buffer& values) {
  if (pull.caches_rows)
    for (std::size_t i = 0; i < reply.versions.size(); ++i)
      memory_->NoteHistory(pull.table, message.keys.sections[i].partition, reply.versions[i], reply.min_clock,
                           StalenessBound(context_->tables.at(pull.table).consistency));
  if (pull.record == nullptr) return;
  pull.record->NoteReply(message.parts, reply.versions, reply.min_clock);
  if (pull.cached == nullptr) pull.record->NoteRows({message.parts, reply.codec, values});
}

void ClientPulls::Finish(RequestId pull) {
  const PullState& whole = pulls_.at(pull);
  if (whole.counted) context_->CountStaleness(whole.staleness);
  note_open_(context_->tables.at(whole.table), whole.clock, whole.open);
  whole.sink->Done(whole.staleness);
  Erase(pull);
}

void ClientPulls::Erase(RequestId pull) {
  const auto it = pulls_.find(pull);
  standing_ -= it->second.standing ? 1 : 0;
  pulls_.erase(it);
}

bool ClientPulls::OnError(ShardId from, const ErrorReply& error) {
  const auto it = messages_.find(error.request);
  if (it == messages_.end() || it->second.shard != from) return false;
  PullMessage& message = it->second;
  if (error.code == ErrorCode::kUnknownKeys && message.by_name) {
    ++context_->counters.repeats;
    context_->counters.pull_bytes += message.frame.size();
    Transmit(it->first, &message);  // with its keys now
  } else if (RefusalOf(error.code) == Refusal::kTransient) {
    Refused(it->first, &message, {error.code, error.message});
  } else {
    Fail(message, {error.code, error.message}, context_->now);
  }
  return true;
}

// Handles a rejection: transient, or lasting too long. kOverloaded is always retried, because a full shard becomes
// free.
void ClientPulls::Refused(RequestId id, PullMessage* message, const Error& error) {
  if (error.code == ErrorCode::kOverloaded || !context_->GivesUp(&message->refusal_timer))
    return RetryAfter(id, RefusalPause(context_->options.resend_us, message->refusals++));
  Fail(*message, error, message->refusal_timer.since());
}

void ClientPulls::Fail(const PullMessage& message, const Error& error, TimeUs since) {
  const RequestId pull = message.pull;
  const std::string what = "a pull of " + context_->NameOf(pulls_.at(pull).table);
  const Error refusal{error.code, context_->RefusalText(message.shard, what, error.message, since)};
  pulls_.at(pull).sink->Failed(refusal);
  Drop(pull);
}

void ClientPulls::FailAll(const Error& error) {
  for (const auto& [id, pull] : pulls_) pull.sink->Failed(error);
  pulls_.clear();
  standing_ = 0;
  messages_.clear();
  queues_.clear();
  timers_.clear();
}

void ClientPulls::FailAfter(Clock last, const Error& error) {
  std::vector<RequestId> later;
  for (const auto& [id, pull] : pulls_)
    if (pull.clock > last) later.push_back(id);
  for (const RequestId id : later) {
    pulls_.at(id).sink->Failed(error);
    Drop(id);
  }
}

void ClientPulls::Drop(RequestId pull) {
  for (auto it = messages_.begin(); it != messages_.end();) {
    if (it->second.pull != pull) {
      ++it;
      continue;
    }
    Release(it->first, &it->second);
    it = messages_.erase(it);
  }
  Erase(pull);
}

void ClientPulls::DropStanding() {
  std::vector<RequestId> standing;
  for (const auto& [id, pull] : pulls_)
    if (pull.standing) standing.push_back(id);
  for (const RequestId id : standing) Drop(id);
}

void ClientPulls::RetryAfter(RequestId message, TimeUs pause) {
  const auto it = messages_.find(message);
  if (it == messages_.end() || !it->second.sent) return;
  SetDue(message, &it->second, std::min(it->second.due, context_->now + pause));
}

void ClientPulls::OnTimer() {
  while (!timers_.empty() && timers_.begin()->first <= context_->now) {
    const RequestId id = timers_.begin()->second;
    PullMessage& message = messages_.at(id);
    ++context_->counters.repeats;
    Transmit(id, &message);
    SetDue(id, &message, context_->now + RepeatPause(context_->options.resend_us, ++message.repeats));
  }
}

TimeUs ClientPulls::NextTimer() const { return timers_.empty() ? kNever : timers_.begin()->first; }

// Queues a message again, divided if its partitions now have different owners.
void ClientPulls::Requeue(RequestId id, PullMessage message) {
  std::map<ShardId, std::vector<std::uint32_t>> by_owner;
  for (std::uint32_t i = 0; i < message.keys.sections.size(); ++i)
    by_owner[context_->OwnerOf(message.keys.sections[i].partition)].push_back(i);
  if (message.sent) ++context_->counters.repeats;
  message.sent = false;
  message.refusal_timer.Progress();
  if (by_owner.size() == 1) {
    message.shard = by_owner.begin()->first;
    QueueOf(message.shard).waiting.insert(TurnOf(id, message));
    messages_.emplace(id, std::move(message));
    return;
  }
  PullState& whole = pulls_.at(message.pull);
  --whole.pieces;
  for (const auto& [owner, which] : by_owner) {
    Piece piece{.shard = owner, .parts = {}, .rows = 0};
    for (std::uint32_t i : which) {
      piece.parts.push_back(message.parts[i]);
      piece.rows += message.parts[i].count;
    }
    Buffer frame;
    KeyList keys = SelectKeys(message.keys, message.frame, which, &frame);
    Add(message.pull, std::move(piece), std::move(keys), std::move(frame));
  }
}

void ClientPulls::Reroute() {
  std::map<RequestId, PullMessage> old;
  old.swap(messages_);
  for (auto& [id, message] : old) SetDue(id, &message, kNever);
  queues_.clear();
  for (auto& [id, message] : old) Requeue(id, std::move(message));
}

std::uint64_t ClientPulls::Hash() const {
  std::uint64_t hash = pulls_.size();
  for (const auto& [id, pull] : pulls_) hash = HashCombine(HashCombine(hash, id.value), pull.pieces);
  for (const auto& [id, message] : messages_) hash = HashCombine(HashCombine(hash, id.value), message.due);
  return hash;
}

}  // namespace tarn::worker

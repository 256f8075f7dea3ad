#include "worker/client/client_pulls.h"

#include <algorithm>

#include "core/hash.h"
#include "core/limits.h"

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

void ClientPulls::Add(RequestId pull, Piece piece, KeyList keys) {
  ++pulls_.at(pull).pieces;
  Enqueue(piece.shard, {.pull = pull, .runs = std::move(piece.parts), .keys = std::move(keys)});
}

void ClientPulls::Enqueue(ShardId shard, Part part) {
  const PullState& whole = pulls_.at(part.pull);
  const std::size_t request = part.keys.frame.size();
  const std::size_t bytes = request + part.keys.count * CodecRowBytes(whole.codec, whole.dim);
  ShardQueue& queue = QueueOf(shard);
  const std::size_t sections = part.keys.sections.size();
  PullMessage* message = Shared(queue, whole, request, bytes, sections);
  if (message == nullptr) {
    const RequestId id = context_->NewRequest();
    message = &messages_[id];
    message->group = group_;
    message->clock = whole.clock;
    message->priority = whole.priority;
    message->standing = whole.standing;
    message->shard = shard;
    queue.waiting.insert(TurnOf(id, *message));
    backlog_.Add(shard);
    // A large table does not separate the small ones before and after it.
    if (request < limits::kSharedRequestBytes && bytes < context_->options.piece_bytes) queue.last = id;
  }
  message->sections += sections;
  message->request_bytes += request;
  message->bytes += bytes;
  message->parts.push_back(std::move(part));
}

// Returns the last small message of the queue if a piece of another table may join it; null: the piece needs a message
// of its own. No message of the current group has been sent, because a group is complete before Dispatch. A server
// answers a message when all of its tables allow it, so they have the same consistency.
ClientPulls::PullMessage* ClientPulls::Shared(const ShardQueue& queue, const PullState& pull, std::size_t request_bytes,
                                              std::size_t bytes, std::size_t sections) {
  const auto it = messages_.find(queue.last);
  if (it == messages_.end() || it->second.group != group_ || it->second.standing || pull.standing) return nullptr;
  PullMessage& message = it->second;
  const bool fits = message.parts.size() < limits::kMessageTablesMax &&
                    message.sections + sections <= limits::kPartitionsMax &&
                    message.request_bytes + request_bytes <= limits::kSharedRequestBytes &&
                    message.bytes - kMessageOverheadBytes + bytes <= context_->options.piece_bytes;
  const bool alike = message.clock == pull.clock && message.priority == pull.priority;
  const bool may_join = std::ranges::all_of(
      message.parts, [&](const Part& part) { return context_->MayShare(pulls_.at(part.pull).table, pull.table); });
  return fits && alike && may_join ? &message : nullptr;
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
  Pull pull{id, message->clock, {}};
  pull.tables.reserve(message->parts.size());
  for (Part& part : message->parts) {
    const PullState& whole = pulls_.at(part.pull);
    PullPart table{whole.table, whole.codec, part.keys};
    lists_->Encode(message->shard, &table.keys);
    part.by_number = table.keys.codec == KeyCodec::kHeld;
    if (!part.counted) context_->counters.pull_bytes += table.keys.frame.size();
    part.counted = true;
    pull.tables.push_back(std::move(table));
  }
  context_->Send(ShardPeer(message->shard), std::move(pull));
}

void ClientPulls::SetDue(RequestId id, PullMessage* message, TimeUs due) {
  if (message->due != kNever) timers_.erase({message->due, id});
  message->due = due;
  if (due != kNever) timers_.emplace(due, id);
}

// Removes a message from its queue or, if it has been sent, from the messages in flight.
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

void ClientPulls::Dispatch() {
  backlog_.Visit([&](ShardId shard) {
    ShardQueue& queue = queues_[shard.value];
    while (!queue.waiting.empty()) {
      const RequestId id = queue.waiting.begin()->id;
      PullMessage& message = messages_.at(id);
      if (!MaySend(queue, message)) return true;
      Launch(id, &message);
      Transmit(id, &message);
    }
    return false;
  });
}

void ClientPulls::OnReply(ShardId from, const PullReply& reply) {
  const auto it = messages_.find(reply.request);
  if (it == messages_.end() || it->second.shard != from) return;  // late or repeated
  const bool answers = std::ranges::equal(reply.tables, it->second.parts,
                                          [this](const auto& table, const auto& part) { return Answers(table, part); });
  if (!answers) {
    ++context_->counters.malformed;
    return Refused(it->first, &it->second, {ErrorCode::kMalformed, "its reply does not match the request"});
  }
  Release(it->first, &it->second);
  const TableParts<Part> parts = std::move(it->second.parts);
  messages_.erase(it);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    lists_->OnHeld(from, parts[i].keys.list);
    QueueOf(from).NoteDisk(reply.tables[i]);
    TakeRows(parts[i], reply.tables[i], reply.min_clock);
  }
}

void ClientPulls::ShardQueue::NoteDisk(const ReplyPart& reply) {
  if (reply.on_disk)
    in_memory.erase(reply.table);
  else
    in_memory.insert(reply.table);
}

bool ClientPulls::Answers(const ReplyPart& reply, const Part& part) const {
  const PullState& whole = pulls_.at(part.pull);
  return reply.table == whole.table && reply.count == part.keys.count &&
         reply.values.size() == part.keys.count * CodecRowBytes(reply.codec, whole.dim) &&
         reply.versions.size() == part.keys.sections.size();
}

void ClientPulls::TakeRows(const Part& part, const ReplyPart& reply, Clock open) {
  PullState& whole = pulls_.at(part.pull);
  whole.open = std::max(whole.open, open);
  if (whole.clock > open) whole.staleness = std::max(whole.staleness, whole.clock.value - open.value);
  context_->counters.pull_bytes += reply.values.size();
  Note(whole, part, reply, open);
  whole.sink->Rows({part.runs, reply.codec, reply.values});
  if (whole.cached != nullptr) whole.cached->Cache(part.runs, part.keys.sections, open);
  if (--whole.pieces == 0) Finish(part.pull);
}

// Notes what a push of the same rows needs.
void ClientPulls::Note(const PullState& pull, const Part& part, const ReplyPart& reply, Clock open) {
  if (pull.caches_rows)
    for (std::size_t i = 0; i < reply.versions.size(); ++i)
      memory_->NoteHistory(pull.table, part.keys.sections[i].partition, reply.versions[i], open, pull.clock,
                           StalenessBound(context_->tables.at(pull.table).consistency));
  if (pull.record == nullptr) return;
  pull.record->NoteReply(part.runs, reply.versions, open);
  if (pull.cached == nullptr) pull.record->NoteRows({part.runs, reply.codec, reply.values});
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
  const bool by_number = std::ranges::any_of(message.parts, &Part::by_number);
  if (error.code == ErrorCode::kUnknownKeys && by_number) {
    ++context_->counters.repeats;
    for (const Part& part : message.parts) context_->counters.pull_bytes += part.by_number ? part.keys.frame.size() : 0;
    Transmit(it->first, &message);  // with its keys now
  } else if (RefusalOf(error.code) == Refusal::kTransient) {
    Refused(it->first, &message, {error.code, error.message});
  } else {
    Fail(message, {error.code, error.message}, context_->now);
  }
  return true;
}

// Handles a transient rejection or a malformed reply: retries the message, or fails its pulls if this lasts too long.
// kOverloaded is always retried, because a full shard becomes free.
void ClientPulls::Refused(RequestId id, PullMessage* message, const Error& error) {
  if (error.code == ErrorCode::kOverloaded || !context_->GivesUp(&message->refusal_timer))
    return RetryAfter(id, message, RefusalPause(context_->options.resend_us, message->refusals++));
  Fail(*message, error, message->refusal_timer.since());
}

// All pulls that share the message fail.
void ClientPulls::Fail(const PullMessage& message, const Error& error, TimeUs since) {
  std::vector<RequestId> pulls;
  std::string what;
  for (const Part& part : message.parts) {
    pulls.push_back(part.pull);
    what += (what.empty() ? "a pull of " : " and ") + context_->NameOf(pulls_.at(part.pull).table);
  }
  const Error refusal{error.code, context_->RefusalText(message.shard, what, error.message, since)};
  for (const RequestId pull : pulls) pulls_.at(pull).sink->Failed(refusal);
  Drop(pulls);
}

void ClientPulls::FailAll(const Error& error) {
  for (const auto& [id, pull] : pulls_) pull.sink->Failed(error);
  pulls_.clear();
  standing_ = 0;
  messages_.clear();
  queues_.clear();
  backlog_.Clear();
  timers_.clear();
}

void ClientPulls::FailAfter(Clock last, const Error& error) {
  std::vector<RequestId> later;
  for (const auto& [id, pull] : pulls_)
    if (pull.clock > last) later.push_back(id);
  for (const RequestId id : later) pulls_.at(id).sink->Failed(error);
  Drop(later);
}

// Erases pulls. The answers to their messages will be ignored, so the other pulls in these messages are requested
// again.
void ClientPulls::Drop(std::span<const RequestId> pulls) {
  std::vector<PullMessage> others;
  for (auto it = messages_.begin(); it != messages_.end();) {
    PullMessage& message = it->second;
    const auto dropped = [&](const Part& part) { return std::ranges::find(pulls, part.pull) != pulls.end(); };
    const auto rest = std::ranges::remove_if(message.parts, dropped);
    if (rest.empty()) {
      ++it;
      continue;
    }
    message.parts.erase(rest.begin(), rest.end());
    Release(it->first, &message);
    if (!message.parts.empty()) others.push_back(std::move(message));
    it = messages_.erase(it);
  }
  for (const RequestId pull : pulls) Erase(pull);
  for (PullMessage& message : others) Divide(std::move(message));
}

void ClientPulls::DropStanding() {
  std::vector<RequestId> standing;
  for (const auto& [id, pull] : pulls_)
    if (pull.standing) standing.push_back(id);
  Drop(standing);
}

void ClientPulls::RetryAfter(RequestId id, PullMessage* message, TimeUs pause) {
  SetDue(id, message, std::min(message->due, context_->now + pause));
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

// Queues a message again. It keeps its id, so that a shard replaces the parked one, unless its partitions now have
// different owners.
void ClientPulls::Requeue(RequestId id, PullMessage message) {
  const ShardId owner = context_->OwnerOf(message.parts.front().keys.sections.front().partition);
  const bool is_whole = std::ranges::all_of(message.parts, [&](const Part& part) {
    return std::ranges::all_of(part.keys.sections,
                               [&](const Section& section) { return context_->OwnerOf(section.partition) == owner; });
  });
  if (!is_whole) return Divide(std::move(message));
  if (message.sent) ++context_->counters.repeats;
  message.sent = false;
  message.refusal_timer.Progress();
  message.shard = owner;
  QueueOf(owner).waiting.insert(TurnOf(id, message));
  backlog_.Add(owner);
  messages_.emplace(id, std::move(message));
}

// Queues the pieces of a message again, in new messages to the owners of their partitions.
void ClientPulls::Divide(PullMessage message) {
  BeginGroup();
  if (message.sent) ++context_->counters.repeats;
  for (Part& part : message.parts) {
    std::map<ShardId, std::vector<std::uint32_t>> by_owner;
    for (std::uint32_t i = 0; i < part.keys.sections.size(); ++i)
      by_owner[context_->OwnerOf(part.keys.sections[i].partition)].push_back(i);
    if (by_owner.size() == 1) {
      Enqueue(by_owner.begin()->first, std::move(part));
      continue;
    }
    pulls_.at(part.pull).pieces += static_cast<std::uint32_t>(by_owner.size()) - 1;
    for (const auto& [owner, which] : by_owner) {
      Part some{.pull = part.pull, .runs = {}, .keys = SelectKeys(part.keys, which), .counted = part.counted};
      for (const std::uint32_t i : which) some.runs.push_back(part.runs[i]);
      Enqueue(owner, std::move(some));
    }
  }
}

void ClientPulls::Reroute() {
  std::map<RequestId, PullMessage> old;
  old.swap(messages_);
  for (auto& [id, message] : old) SetDue(id, &message, kNever);
  queues_.clear();
  backlog_.Clear();
  for (auto& [id, message] : old) Requeue(id, std::move(message));
}

std::size_t ClientPulls::Unanswered(ShardId shard) const {
  std::size_t messages = 0;
  if (shard.value < queues_.size())
    for (const auto& [clock, count] : queues_[shard.value].in_flight) messages += count;
  return messages;
}

std::uint64_t ClientPulls::Hash() const {
  std::uint64_t hash = pulls_.size();
  for (const auto& [id, pull] : pulls_) hash = HashCombine(HashCombine(hash, id.value), pull.pieces);
  for (const auto& [id, message] : messages_) hash = HashCombine(HashCombine(hash, id.value), message.due);
  for (const ShardQueue& queue : queues_) {
    hash = HashCombine(hash, queue.in_memory.size());
    for (const TableId table : queue.in_memory) hash = HashCombine(hash, table.value);
  }
  return hash;
}

}  // namespace tarn::worker

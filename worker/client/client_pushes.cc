#include "worker/client/client_pushes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/hash.h"
#include "core/limits.h"

namespace tarn::worker {

namespace {

// Copies the version of each section from `origin`. `sections`: of a piece of the plan, in ascending order of
// partition.
void SetVersions(const Plan& plan, const PushOrigin& origin, std::vector<Section>* sections) {
  std::size_t run = 0;
  for (Section& section : *sections) {
    while (plan.runs[run].partition != section.partition) ++run;
    section.version = origin.versions[run];
  }
}

PushValues EncodeValues(const PushRows& push, const TableSpec& spec, const Piece& piece, PushAction action) {
  switch (action) {
    case PushAction::kStep: return EncodePush(push, spec, piece);
    case PushAction::kAssign: return {ValueCodec::kFp32, EncodeRows(push.rows, spec.dim, piece, ValueCodec::kFp32)};
    case PushAction::kDelete: break;
  }
  return {};
}

// What the part of a push is called in errors.
std::string_view NameOf(PushAction action) {
  switch (action) {
    case PushAction::kStep: break;
    case PushAction::kAssign: return "an assignment to";
    case PushAction::kDelete: return "a deletion in";
  }
  return "a push to";
}

Buffer Joined(const Buffer& first, const Buffer& second) {
  Buffer all = Buffer::Allocate(first.size() + second.size());
  std::memcpy(all.data(), first.data(), first.size());
  std::memcpy(all.data() + first.size(), second.data(), second.size());
  return all;
}

}  // namespace

ClientPushes::ShardQueue& ClientPushes::QueueOf(ShardId shard) {
  while (queues_.size() <= shard.value) {
    queues_.emplace_back(context_->options.credit_bytes / 2);
    queues_.back().first_attempt = context_->NewRequest();  // rejections from before a new route map are outdated
  }
  return queues_[shard.value];
}

void ClientPushes::SetDue(ShardQueue* queue, TimeUs due) {
  queue->due = due;
  earliest_due_ = std::min(earliest_due_, due);
}

void ClientPushes::Number(KeyList* keys) {
  for (Section& section : keys->sections) {
    PartitionLog& log = partitions_[section.partition.value];
    section.sequence = log.issued = Sequence(log.issued.value + 1);
  }
}

void ClientPushes::Add(const Plan& plan, const TableSpec& spec, const PushRows& rows, const PushOrigin& origin,
                       const What& what, std::vector<Gathered> gathered) {
  TARN_CHECK(!plan.keys.empty(), "a push has rows");
  const RequestId id = context_->NewRequest();
  ++context_->counters.pushes;
  const std::uint32_t rows_max = PieceRows(spec, context_->options.piece_bytes);
  const std::vector<Piece> pieces = CutPieces(plan, context_->view.routes, rows_max);
  if (gathered.empty()) Open(what.clock);
  pushes_[id] = {what.clock, static_cast<std::uint32_t>(pieces.size()), 0, what.done, std::move(gathered)};
  for (const Piece& piece : pieces) {
    Part part{.push = id, .rows = {}};
    PushPart& sent = part.rows;
    sent.table = spec.id;
    sent.pulled_clock = origin.seen;
    sent.keys = PieceKeys(plan.keys, piece);
    SetVersions(plan, origin, &sent.keys.sections);
    // A list of selected rows, or of a change, is rarely repeated.
    const bool selected = spec.push_codec == ValueCodec::kTopK && spec.kind == TableKind::kSparse;
    if (!selected && what.action == PushAction::kStep)
      sent.keys.list = lists_->NumberOf(piece.shard, sent.keys.frame, context_->now);
    sent.action = what.action;
    PushValues push = EncodeValues(rows, spec, piece, what.action);
    sent.codec = push.codec;
    sent.values = std::move(push.values);
    if (!origin.pulled.empty()) {
      sent.pulled = PulledCodec(spec);
      sent.values = Joined(sent.values, EncodeRows(origin.pulled, spec.dim, piece, *sent.pulled));
    }
    Number(&sent.keys);
    Enqueue(what.clock, std::move(part));
  }
}

// Adds the piece to the queue of the shard that owns its partitions in the current route map.
void ClientPushes::Enqueue(Clock clock, Part part) {
  const ShardId shard = context_->OwnerOf(part.rows.keys.sections.front().partition);
  ShardQueue& queue = QueueOf(shard);
  PushMessage* message = Shared(queue, clock, part);
  if (message == nullptr) {
    queue.waiting.push_back(next_order_);
    backlog_.Add(shard);
    message = &messages_[next_order_++];
    message->group = group_;
    message->clock = clock;
    message->shard = shard;
  }
  const Order order = queue.waiting.back();
  for (const Section& section : part.rows.keys.sections) {
    PartitionLog& log = partitions_[section.partition.value];
    if (section.sequence <= log.acked) continue;
    TARN_CHECK(section.sequence.value == log.acked.value + log.waiting.size() + 1, "the sequences have no gap");
    log.waiting.push_back(order);
    ++message->unacked;
  }
  pending_bytes_ += part.bytes();
  pushes_.at(part.push).bytes += part.bytes();
  message->bytes += part.bytes();
  message->parts.push_back(std::move(part));
}

// The last message of the queue, if it may take a piece of a further table; null: the piece needs a message of its own.
// Not an earlier one, because the sequences of a partition are sent in order.
ClientPushes::PushMessage* ClientPushes::Shared(const ShardQueue& queue, Clock clock, const Part& part) {
  if (queue.waiting.empty()) return nullptr;
  PushMessage& last = messages_.at(queue.waiting.back());
  const std::size_t bytes = last.bytes - kMessageOverheadBytes + part.bytes();
  std::size_t sections = part.rows.keys.sections.size();
  for (const Part& other : last.parts) sections += other.rows.keys.sections.size();
  const bool fits = last.parts.size() < limits::kMessageTablesMax && sections <= limits::kPartitionsMax &&
                    bytes <= std::min(limits::kSharedRequestBytes, context_->options.piece_bytes);
  const bool may_join = std::ranges::all_of(
      last.parts, [&](const Part& other) { return context_->MayShare(other.rows.table, part.rows.table); });
  return fits && may_join && last.clock == clock && last.group == group_ ? &last : nullptr;
}

bool ClientPushes::SendFirst(ShardQueue* queue) {
  const Order order = queue->waiting.front();
  PushMessage& message = messages_.at(order);
  if (!queue->in_flight.empty() && !queue->credit.Fits(message.bytes)) return false;
  queue->waiting.pop_front();
  if (queue->in_flight.empty()) SetDue(queue, context_->now + RepeatPause(context_->options.resend_us, 0));
  queue->credit.Take(message.bytes);
  queue->in_flight.emplace(order, &message);
  Transmit(&message);
  return true;
}

void ClientPushes::Transmit(PushMessage* message) {
  message->attempt = context_->NewRequest();
  Push push{message->attempt, message->clock, {}};
  push.tables.reserve(message->parts.size());
  for (Part& part : message->parts) {
    PushPart& sent = push.tables.emplace_back(part.rows);
    lists_->Encode(message->shard, &sent.keys);
    part.by_number = sent.keys.codec == KeyCodec::kHeld;
    if (!part.counted) context_->counters.push_bytes += sent.keys.frame.size() + sent.values.size();
    part.counted = true;
  }
  context_->Send(ShardPeer(message->shard), std::move(push));
}

void ClientPushes::OnAck(ShardId from, const PushAck& ack) {
  if (!context_->IsOurs(ack.request)) return;
  Error refusal{ErrorCode::kOk, ""};
  for (const SectionAck& section : ack.sections) {
    if (section.partition.value >= partitions_.size()) {
      ++context_->counters.malformed;
      continue;
    }
    if (section.code == ErrorCode::kOk) {
      AckThrough(section.partition, section.sequence);
      continue;
    }
    if (section.code == ErrorCode::kOverloaded)
      QueueOf(from).refusal_timer.Progress();  // even if another section was rejected
    if (section.code == ErrorCode::kOutOfOrder && section.expected.value != 0)
      AckThrough(section.partition, Sequence(section.expected.value - 1));
    if (refusal.code == ErrorCode::kOk || RefusalOf(section.code) != Refusal::kTransient)
      refusal = {section.code, fmt::format("{}: sequence {} of partition {}, which expects {}", ErrorName(section.code),
                                           section.sequence.value, section.partition.value, section.expected.value)};
  }
  if (refusal.code != ErrorCode::kOk) Refused(from, ack.request, refusal);
}

void ClientPushes::AckThrough(PartitionId partition, Sequence sequence) {
  PartitionLog& log = partitions_[partition.value];
  if (sequence > log.issued) {
    ++context_->counters.malformed;
    return;
  }
  while (log.acked < sequence) {
    log.acked = Sequence(log.acked.value + 1);
    const Order order = log.waiting.front();
    log.waiting.pop_front();
    if (--messages_.at(order).unacked == 0) Finish(order);
  }
}

void ClientPushes::Finish(Order order) {
  const auto it = messages_.find(order);
  const PushMessage& message = it->second;
  ShardQueue& queue = QueueOf(message.shard);
  if (message.attempt.value != 0) {
    for (const Part& part : message.parts) lists_->OnHeld(message.shard, part.rows.keys.list);
    queue.credit.Return(message.bytes);
    queue.in_flight.erase(order);
    queue.repeats = queue.refusals = 0;
    queue.refusal_timer.Progress();
    SetDue(&queue, queue.in_flight.empty() ? kNever : context_->now + RepeatPause(context_->options.resend_us, 0));
  } else {  // an acknowledgement of an attempt before the last route map
    queue.waiting.erase(std::find(queue.waiting.begin(), queue.waiting.end(), order));
  }
  for (const Part& part : message.parts) Finish(part);
  messages_.erase(it);
}

void ClientPushes::Finish(const Part& part) {
  const auto push = pushes_.find(part.push);
  if (--push->second.pieces != 0) return;
  const CallerPush whole = std::move(push->second);
  pending_bytes_ -= whole.bytes;
  pushes_.erase(push);
  if (whole.gathered.empty()) Acknowledged({whole.clock, whole.done});
  for (const Gathered& one : whole.gathered) Acknowledged(one);
}

void ClientPushes::Acknowledged(const Gathered& push) {
  const auto open = open_clocks_.find(push.clock);
  if (--open->second == 0) open_clocks_.erase(open);
  Complete(push.done);
}

void ClientPushes::Refused(ShardId shard, RequestId attempt, const Error& error) {
  ShardQueue* queue = &QueueOf(shard);
  const auto sent = std::find_if(queue->in_flight.begin(), queue->in_flight.end(),
                                 [&](const auto& entry) { return entry.second->attempt == attempt; });
  switch (RefusalOf(error.code)) {
    case Refusal::kFenced: context_->Stop(error.code, error.message); return;
    case Refusal::kFinal:
      if (sent != queue->in_flight.end()) GiveUp(shard, *sent->second, error, context_->now);
      return;
    case Refusal::kTransient: break;
  }
  // After a repeat, rejections of earlier sends are outdated: all messages sent after a lost one are rejected, too.
  if (attempt < queue->first_attempt || queue->in_flight.empty()) return;
  if (error.code == ErrorCode::kUnknownKeys && sent != queue->in_flight.end() &&
      std::ranges::any_of(sent->second->parts, &Part::by_number)) {
    for (const Part& part : sent->second->parts)
      context_->counters.push_bytes += part.by_number ? part.rows.keys.frame.size() : 0;
    return Repeat(queue);  // with its keys now
  }
  // kOverloaded is always retried, because a full shard becomes free. It restarts the timer also for the pushes behind
  // it, which are rejected as out of order.
  if (error.code == ErrorCode::kOverloaded)
    queue->refusal_timer.Progress();
  else if (context_->GivesUp(&queue->refusal_timer))
    return GiveUp(shard, *queue->in_flight.begin()->second, error, queue->refusal_timer.since());
  if (error.code == ErrorCode::kOutOfOrder && queue->refusals++ == 0) return Repeat(queue);
  const TimeUs pause = RefusalPause(context_->options.resend_us, queue->refusals++);
  SetDue(queue, std::min(queue->due, context_->now + pause));
}

// A gap in the sequences would block the partition permanently, so the client must stop.
void ClientPushes::GiveUp(ShardId shard, const PushMessage& refused, const Error& error, TimeUs since) {
  std::string what;
  for (const Part& part : refused.parts)
    what += what.empty() ? fmt::format("{} {}", NameOf(part.rows.action), context_->NameOf(part.rows.table))
                         : " and " + context_->NameOf(part.rows.table);
  const Error final{error.code, context_->RefusalText(shard, what, error.message, since)};
  for (const Part& part : refused.parts) FailPush(&pushes_.at(part.push), final);
  context_->Stop(final.code, final.message);
}

void ClientPushes::FailPush(CallerPush* push, const Error& error) {
  Fail(std::exchange(push->done, nullptr), error);
  for (Gathered& part : push->gathered) Fail(std::exchange(part.done, nullptr), error);
}

void ClientPushes::FailAll(const Error& error) {
  for (auto& [id, push] : pushes_) FailPush(&push, error);
}

void ClientPushes::OnError(ShardId from, const ErrorReply& error) {
  if (context_->IsOurs(error.request)) Refused(from, error.request, {error.code, error.message});
}

// Sends everything in flight again, in order.
void ClientPushes::Repeat(ShardQueue* queue) {
  bool first = true;
  for (auto& [order, message] : queue->in_flight) {
    ++context_->counters.repeats;
    Transmit(message);
    if (first) queue->first_attempt = message->attempt;
    first = false;
  }
  SetDue(queue, context_->now + RepeatPause(context_->options.resend_us, ++queue->repeats));
}

void ClientPushes::OnTimer() {
  if (earliest_due_ > context_->now) return;
  earliest_due_ = kNever;
  for (ShardQueue& queue : queues_) queue.due <= context_->now ? Repeat(&queue) : SetDue(&queue, queue.due);
}

void ClientPushes::Split(Clock clock, const Part& part, const std::map<ShardId, std::vector<std::uint32_t>>& by_owner) {
  const PushPart& rows = part.rows;
  const KeyList& keys = rows.keys;
  pushes_.at(part.push).pieces += static_cast<std::uint32_t>(by_owner.size()) - 1;
  const std::uint32_t dim = context_->tables.at(rows.table).dim;
  const std::size_t pulled_bytes = rows.pulled ? keys.count * CodecRowBytes(*rows.pulled, dim) : 0;
  const std::size_t gradient_bytes = rows.values.size() - pulled_bytes;
  const PushValues whole = RowByRow({rows.codec, rows.values.Slice(0, gradient_bytes)}, dim, keys.count);
  for (const auto& [owner, which] : by_owner) {
    Part some{.push = part.push, .rows = rows, .counted = part.counted};
    some.rows.keys = SelectKeys(keys, which);
    some.rows.codec = whole.codec;
    some.rows.values = SelectValues(keys, whole.values, which);
    if (rows.pulled)
      some.rows.values =
          Joined(some.rows.values, SelectValues(keys, rows.values.Slice(gradient_bytes, pulled_bytes), which));
    Enqueue(clock, std::move(some));
  }
}

// Adds a piece again, without acknowledged sections, and divided where its partitions now have different owners.
void ClientPushes::Requeue(Clock clock, Part part) {
  pending_bytes_ -= part.bytes();
  pushes_.at(part.push).bytes -= part.bytes();
  std::map<ShardId, std::vector<std::uint32_t>> by_owner;
  const std::vector<Section>& sections = part.rows.keys.sections;
  for (std::uint32_t i = 0; i < sections.size(); ++i)
    if (sections[i].sequence > partitions_[sections[i].partition.value].acked)
      by_owner[context_->OwnerOf(sections[i].partition)].push_back(i);
  if (by_owner.empty()) return Finish(part);
  const bool whole = by_owner.size() == 1 && by_owner.begin()->second.size() == sections.size();
  whole ? Enqueue(clock, std::move(part)) : Split(clock, part, by_owner);
}

void ClientPushes::Reroute() {
  std::map<Order, PushMessage> old;
  old.swap(messages_);
  queues_.clear();
  backlog_.Clear();
  for (PartitionLog& log : partitions_) log.waiting.clear();
  for (auto& [order, message] : old) {
    BeginGroup();
    if (message.attempt.value != 0) ++context_->counters.repeats;
    for (Part& part : message.parts) Requeue(message.clock, std::move(part));
  }
}

std::uint64_t ClientPushes::Hash() const {
  std::uint64_t hash = pending_bytes_;
  for (const PartitionLog& log : partitions_) hash = HashCombine(HashCombine(hash, log.issued.value), log.acked.value);
  for (const ShardQueue& queue : queues_) hash = HashCombine(HashCombine(hash, queue.credit.in_flight()), queue.due);
  return hash;
}

}  // namespace tarn::worker

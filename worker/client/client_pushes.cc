#include "worker/client/client_pushes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/hash.h"

namespace tarn::worker {

namespace {

// `sections`: of a piece of the plan, in ascending order of partition.
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
    PushMessage message;
    message.push = id;
    message.table = spec.id;
    message.clock = what.clock;
    message.pulled_clock = origin.seen;
    message.keys = PieceKeys(plan.keys, piece, &message.frame);
    SetVersions(plan, origin, &message.keys.sections);
    // A list of selected rows, or of a change, is rarely repeated.
    const bool selected = spec.push_codec == ValueCodec::kTopK && spec.kind == TableKind::kSparse;
    if (!selected && what.action == PushAction::kStep)
      message.keys.list = lists_->NumberOf(piece.shard, message.frame, context_->now);
    message.action = what.action;
    PushValues push = EncodeValues(rows, spec, piece, what.action);
    message.codec = push.codec;
    message.values = std::move(push.values);
    if (!origin.pulled.empty()) {
      message.pulled = PulledCodec(spec);
      message.values = Joined(message.values, EncodeRows(origin.pulled, spec.dim, piece, *message.pulled));
    }
    Number(&message.keys);
    if (what.pull.value != 0) message.pull_message = pulls_->Add(what.pull, piece, message.keys, message.frame);
    Enqueue(std::move(message));
  }
}

// Appends the message to the queue of the shard that owns its partitions in the current route map.
void ClientPushes::Enqueue(PushMessage message) {
  const Order order = next_order_++;
  message.shard = context_->OwnerOf(message.keys.sections.front().partition);
  message.attempt = RequestId(0);
  message.unacked = 0;
  for (const Section& section : message.keys.sections) {
    PartitionLog& log = partitions_[section.partition.value];
    if (section.sequence <= log.acked) continue;
    TARN_CHECK(section.sequence.value == log.acked.value + log.waiting.size() + 1, "a gap in the sequences");
    log.waiting.push_back(order);
    ++message.unacked;
  }
  pending_bytes_ += message.bytes();
  pushes_.at(message.push).bytes += message.bytes();
  QueueOf(message.shard).waiting.push_back(order);
  messages_.emplace(order, std::move(message));
}

bool ClientPushes::SendFirst(ShardQueue* queue) {
  const Order order = queue->waiting.front();
  PushMessage& message = messages_.at(order);
  if (!queue->in_flight.empty() && !queue->credit.Fits(message.bytes())) return false;
  queue->waiting.pop_front();
  if (queue->in_flight.empty()) queue->due = context_->now + RepeatPause(context_->options.resend_us, 0);
  queue->credit.Take(message.bytes());
  queue->in_flight.emplace(order, &message);
  Transmit(&message);
  return true;
}

void ClientPushes::Transmit(PushMessage* p) {
  p->attempt = context_->NewRequest();
  Push push{p->attempt, p->table, p->clock, p->pulled_clock, p->codec, p->keys, p->pulled, p->action};
  Buffer frame = p->frame;
  lists_->Encode(p->shard, &push.keys, &frame);
  p->by_name = push.keys.codec == KeyCodec::kHeld;
  if (!p->counted) context_->counters.push_bytes += frame.size() + p->values.size();
  p->counted = true;
  ClientPulls::Claimed pull;
  if (p->pull_message.value != 0 && pulls_->Claim(p->pull_message, p->by_name, &pull)) {
    context_->Send(ShardPeer(p->shard), PushPull{std::move(push), pull.request, pull.clock, pull.codec},
                   std::move(frame), p->values);
  } else {
    context_->Send(ShardPeer(p->shard), std::move(push), std::move(frame), p->values);
  }
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
  PushMessage& message = it->second;
  ShardQueue& queue = QueueOf(message.shard);
  if (message.attempt.value != 0) {
    lists_->OnHeld(message.shard, message.keys.list);
    queue.credit.Return(message.bytes());
    queue.in_flight.erase(order);
    queue.repeats = queue.refusals = 0;
    queue.refusal_timer.Progress();
    queue.due = queue.in_flight.empty() ? kNever : context_->now + RepeatPause(context_->options.resend_us, 0);
  } else {  // an acknowledgement of an attempt before the last route map
    queue.waiting.erase(std::find(queue.waiting.begin(), queue.waiting.end(), order));
  }
  const auto push = pushes_.find(message.push);
  if (--push->second.messages == 0) {
    const CallerPush whole = std::move(push->second);
    pending_bytes_ -= whole.bytes;
    pushes_.erase(push);
    if (whole.gathered.empty()) Acknowledged({whole.clock, whole.done});
    for (const Gathered& part : whole.gathered) Acknowledged(part);
  }
  messages_.erase(it);
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
  // One rejection counts for all messages of its attempt, because messages sent after a lost one are rejected as well.
  if (attempt < queue->first_attempt || queue->in_flight.empty()) return;
  if (error.code == ErrorCode::kUnknownKeys && sent != queue->in_flight.end() && sent->second->by_name) {
    context_->counters.push_bytes += sent->second->frame.size();
    return Repeat(queue);  // with its keys now
  }
  // kOverloaded is always retried, because a full shard becomes free; so are the following out-of-order pushes.
  if (error.code == ErrorCode::kOverloaded)
    queue->refusal_timer.Progress();
  else if (context_->GivesUp(&queue->refusal_timer))
    return GiveUp(shard, *queue->in_flight.begin()->second, error, queue->refusal_timer.since());
  if (error.code == ErrorCode::kOutOfOrder && queue->refusals++ == 0) return Repeat(queue);
  const TimeUs pause = RefusalPause(context_->options.resend_us, queue->refusals++);
  queue->due = std::min(queue->due, context_->now + pause);
  if (sent != queue->in_flight.end() && sent->second->pull_message.value != 0)
    pulls_->RetryAfter(sent->second->pull_message, pause);
}

// A gap in the sequences would block the partition permanently, so the client must stop.
void ClientPushes::GiveUp(ShardId shard, const PushMessage& refused, const Error& error, TimeUs since) {
  const Error final{error.code,
                    context_->RefusalText(shard, "a push to " + context_->NameOf(refused.table), error.message, since)};
  FailPush(&pushes_.at(refused.push), final);
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
  queue->due = context_->now + RepeatPause(context_->options.resend_us, ++queue->repeats);
}

void ClientPushes::OnTimer() {
  for (ShardQueue& queue : queues_)
    if (queue.due <= context_->now) Repeat(&queue);
}

TimeUs ClientPushes::NextTimer() const {
  TimeUs next = kNever;
  for (const ShardQueue& queue : queues_) next = std::min(next, queue.due);
  return next;
}

void ClientPushes::Split(const PushMessage& message, const std::map<ShardId, std::vector<std::uint32_t>>& by_owner) {
  pushes_.at(message.push).messages += static_cast<std::uint32_t>(by_owner.size()) - 1;
  const std::uint32_t dim = context_->tables.at(message.table).dim;
  const std::size_t pulled_bytes = message.pulled ? message.keys.count * CodecRowBytes(*message.pulled, dim) : 0;
  const std::size_t gradient_bytes = message.values.size() - pulled_bytes;
  const PushValues whole = RowByRow({message.codec, message.values.Slice(0, gradient_bytes)}, dim, message.keys.count);
  for (const auto& [owner, which] : by_owner) {
    PushMessage part = message;
    part.pull_message = RequestId(0);
    part.frame = Buffer();
    part.keys = SelectKeys(message.keys, message.frame, which, &part.frame);
    part.codec = whole.codec;
    part.values = SelectValues(message.keys, whole.values, which);
    if (message.pulled)
      part.values =
          Joined(part.values, SelectValues(message.keys, message.values.Slice(gradient_bytes, pulled_bytes), which));
    Enqueue(std::move(part));
  }
}

void ClientPushes::Reroute() {
  std::map<Order, PushMessage> old;
  old.swap(messages_);
  queues_.clear();
  for (PartitionLog& log : partitions_) log.waiting.clear();
  for (auto& [order, message] : old) {
    if (message.attempt.value != 0) ++context_->counters.repeats;
    pending_bytes_ -= message.bytes();
    pushes_.at(message.push).bytes -= message.bytes();
    std::map<ShardId, std::vector<std::uint32_t>> by_owner;
    for (std::uint32_t i = 0; i < message.keys.sections.size(); ++i) {
      const Section& section = message.keys.sections[i];
      if (section.sequence > partitions_[section.partition.value].acked)
        by_owner[context_->OwnerOf(section.partition)].push_back(i);
    }
    const bool whole = by_owner.size() == 1 && by_owner.begin()->second.size() == message.keys.sections.size();
    if (whole) {
      Enqueue(std::move(message));
    } else {
      Split(message, by_owner);
    }
  }
}

std::uint64_t ClientPushes::Hash() const {
  std::uint64_t hash = pending_bytes_;
  for (const PartitionLog& log : partitions_) hash = HashCombine(HashCombine(hash, log.issued.value), log.acked.value);
  for (const ShardQueue& queue : queues_) hash = HashCombine(HashCombine(hash, queue.credit.in_flight()), queue.due);
  return hash;
}

}  // namespace tarn::worker

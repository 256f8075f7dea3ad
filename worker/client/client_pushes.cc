#include "worker/client/client_pushes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/hash.h"

namespace tarn::worker {

ClientPushes::Lane& ClientPushes::LaneOf(ShardId shard) {
  while (lanes_.size() <= shard.value) {
    lanes_.emplace_back(desk_->options.credit_bytes / 2);
    lanes_.back().first_attempt = desk_->NewRequest();  // refusals from before a new route map are out of date
  }
  return lanes_[shard.value];
}

void ClientPushes::Number(KeyList* keys) {
  for (Section& section : keys->sections) {
    PartitionLog& log = partitions_[section.partition.value];
    section.sequence = log.issued = Sequence(log.issued.value + 1);
  }
}

RequestId ClientPushes::Add(const Plan& plan, const TableSpec& spec, const Buffer& gradients, const What& what,
                            std::vector<Gathered> gathered) {
  const RequestId id = gathered.empty() ? desk_->NewRequest() : gathered.back().push;
  ++desk_->counters.pushes;
  if (plan.keys.empty()) {
    desk_->events.push_back(PushDone{id});
    return id;
  }
  const std::uint32_t rows_max = PieceRows(spec, desk_->options.piece_bytes);
  const std::vector<Piece> pieces = CutPieces(plan, desk_->view.routes, rows_max);
  if (gathered.empty()) Open(what.clock);
  pushes_[id] = {what.clock, static_cast<std::uint32_t>(pieces.size()), 0, std::move(gathered)};
  for (const Piece& piece : pieces) {
    Pending pending;
    pending.push = id;
    pending.table = spec.id;
    pending.clock = what.clock;
    pending.pulled_clock = what.pulled_clock;
    pending.keys = PieceKeys(plan.keys, piece, &pending.frame);
    // A list of chosen rows hardly comes again.
    if (spec.push_codec != ValueCodec::kTopK || spec.kind == TableKind::kDense)
      pending.keys.list = desk_->lists.NumberOf(piece.shard, pending.frame, desk_->now);
    PushValues push = EncodePush(gradients, spec, piece);
    pending.codec = push.codec;
    pending.values = std::move(push.values);
    Number(&pending.keys);
    if (what.pull.value != 0) pending.pull_message = pulls_->Add(what.pull, piece, pending.keys, pending.frame);
    Enqueue(std::move(pending));
  }
  return id;
}

// Behind everything else; the message's shard follows from the route map.
void ClientPushes::Enqueue(Pending pending) {
  const Order order = next_order_++;
  pending.shard = desk_->OwnerOf(pending.keys.sections.front().partition);
  pending.attempt = RequestId(0);
  pending.unacked = 0;
  for (const Section& section : pending.keys.sections) {
    PartitionLog& log = partitions_[section.partition.value];
    if (section.sequence <= log.acked) continue;
    TARN_CHECK(section.sequence.value == log.acked.value + log.waiting.size() + 1, "a gap in the sequences");
    log.waiting.push_back(order);
    ++pending.unacked;
  }
  pending_bytes_ += pending.bytes();
  pushes_.at(pending.push).bytes += pending.bytes();
  LaneOf(pending.shard).queue.push_back(order);
  messages_.emplace(order, std::move(pending));
}

bool ClientPushes::SendFirst(Lane* lane) {
  const Order order = lane->queue.front();
  Pending& pending = messages_.at(order);
  if (!lane->in_flight.empty() && !lane->credit.Fits(pending.bytes())) return false;
  lane->queue.pop_front();
  if (lane->in_flight.empty()) lane->due = desk_->now + RepeatPause(desk_->options.resend_us, 0);
  lane->credit.Take(pending.bytes());
  lane->in_flight.emplace(order, &pending);
  Transmit(&pending);
  return true;
}

void ClientPushes::Transmit(Pending* p) {
  p->attempt = desk_->NewRequest();
  Push push{p->attempt, p->table, p->clock, p->pulled_clock, p->codec, p->keys};
  Buffer frame = p->frame;
  desk_->lists.Dress(p->shard, &push.keys, &frame);
  p->by_name = push.keys.codec == KeyCodec::kHeld;
  if (!p->counted) desk_->counters.push_bytes += frame.size() + p->values.size();
  p->counted = true;
  ClientPulls::Claimed pull;
  if (p->pull_message.value != 0 && pulls_->Claim(p->pull_message, p->by_name, &pull)) {
    desk_->Send(ShardPeer(p->shard), PushPull{std::move(push), pull.request, pull.clock, pull.codec}, std::move(frame),
                p->values);
  } else {
    desk_->Send(ShardPeer(p->shard), std::move(push), std::move(frame), p->values);
  }
}

void ClientPushes::OnAck(ShardId from, const PushAck& ack) {
  if (!desk_->IsOurs(ack.request)) return;
  Error refusal{ErrorCode::kOk, ""};
  for (const SectionAck& section : ack.sections) {
    if (section.partition.value >= partitions_.size()) {
      ++desk_->counters.malformed;
      continue;
    }
    if (section.code == ErrorCode::kOk) {
      AckThrough(section.partition, section.sequence);
      continue;
    }
    if (section.code == ErrorCode::kOverloaded) LaneOf(from).patience.Progress();  // also if another section speaks
    if (section.code == ErrorCode::kOutOfOrder && section.expected.value != 0)
      AckThrough(section.partition, Sequence(section.expected.value - 1));
    if (refusal.code == ErrorCode::kOk || Judge(section.code) != Verdict::kRetry)
      refusal = {section.code, fmt::format("{}: sequence {} of partition {}, which expects {}", ErrorName(section.code),
                                           section.sequence.value, section.partition.value, section.expected.value)};
  }
  if (refusal.code != ErrorCode::kOk) Refused(from, ack.request, refusal);
}

void ClientPushes::AckThrough(PartitionId partition, Sequence sequence) {
  PartitionLog& log = partitions_[partition.value];
  if (sequence > log.issued) {
    ++desk_->counters.malformed;
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
  Pending& pending = it->second;
  Lane& lane = LaneOf(pending.shard);
  if (pending.attempt.value != 0) {
    desk_->lists.OnHeld(pending.shard, pending.keys.list);
    lane.credit.Return(pending.bytes());
    lane.in_flight.erase(order);
    lane.repeats = lane.refusals = 0;
    lane.patience.Progress();
    lane.due = lane.in_flight.empty() ? kNever : desk_->now + RepeatPause(desk_->options.resend_us, 0);
  } else {  // acknowledged from before the last route map
    lane.queue.erase(std::find(lane.queue.begin(), lane.queue.end(), order));
  }
  const auto push = pushes_.find(pending.push);
  if (--push->second.messages == 0) {
    if (push->second.gathered.empty()) Acknowledged({pending.push, push->second.clock});
    for (const Gathered& part : push->second.gathered) Acknowledged(part);
    pending_bytes_ -= push->second.bytes;
    pushes_.erase(push);
  }
  messages_.erase(it);
}

void ClientPushes::Acknowledged(const Gathered& push) {
  const auto open = open_clocks_.find(push.clock);
  if (--open->second == 0) open_clocks_.erase(open);
  desk_->events.push_back(PushDone{push.push});
}

void ClientPushes::Refused(ShardId shard, RequestId attempt, const Error& error) {
  Lane* lane = &LaneOf(shard);
  const auto sent = std::find_if(lane->in_flight.begin(), lane->in_flight.end(),
                                 [&](const auto& entry) { return entry.second->attempt == attempt; });
  switch (Judge(error.code)) {
    case Verdict::kFenced: desk_->Stop(error.code, error.message); return;
    case Verdict::kFatal:
      if (sent != lane->in_flight.end()) GiveUp(shard, *sent->second, error, desk_->now);
      return;
    case Verdict::kRetry: break;
  }
  // One refusal speaks for all of its attempt: what was sent behind a lost message is refused as well.
  if (attempt < lane->first_attempt || lane->in_flight.empty()) return;
  if (error.code == ErrorCode::kUnknownKeys && sent != lane->in_flight.end() && sent->second->by_name) {
    desk_->counters.push_bytes += sent->second->frame.size();
    return Repeat(lane);  // with its keys now
  }
  // A full shard empties: nobody gives up over that, nor over what is out of order behind it.
  if (error.code == ErrorCode::kOverloaded)
    lane->patience.Progress();
  else if (desk_->GivesUp(&lane->patience))
    return GiveUp(shard, *lane->in_flight.begin()->second, error, lane->patience.since());
  if (error.code == ErrorCode::kOutOfOrder && lane->refusals++ == 0) return Repeat(lane);
  const TimeUs pause = RefusalPause(desk_->options.resend_us, lane->refusals++);
  lane->due = std::min(lane->due, desk_->now + pause);
  if (sent != lane->in_flight.end() && sent->second->pull_message.value != 0)
    pulls_->RetryAfter(sent->second->pull_message, pause);
}

// A gap in the sequences would stop the partition for good: the caller can only give up.
void ClientPushes::GiveUp(ShardId shard, const Pending& refused, const Error& error, TimeUs since) {
  const Error final{error.code,
                    desk_->Refusal(shard, "a push to " + desk_->NameOf(refused.table), error.message, since)};
  desk_->events.push_back(RequestFailed{refused.push, final});
  desk_->Stop(final.code, final.message);
}

void ClientPushes::OnError(ShardId from, const ErrorReply& error) {
  if (desk_->IsOurs(error.request)) Refused(from, error.request, {error.code, error.message});
}

// Sends everything in flight again, in order.
void ClientPushes::Repeat(Lane* lane) {
  bool first = true;
  for (auto& [order, pending] : lane->in_flight) {
    ++desk_->counters.repeats;
    Transmit(pending);
    if (first) lane->first_attempt = pending->attempt;
    first = false;
  }
  lane->due = desk_->now + RepeatPause(desk_->options.resend_us, ++lane->repeats);
}

void ClientPushes::OnTimer() {
  for (Lane& lane : lanes_)
    if (lane.due <= desk_->now) Repeat(&lane);
}

TimeUs ClientPushes::NextTimer() const {
  TimeUs next = kNever;
  for (const Lane& lane : lanes_) next = std::min(next, lane.due);
  return next;
}

void ClientPushes::Split(const Pending& pending, const std::map<ShardId, std::vector<std::uint32_t>>& by_owner) {
  pushes_.at(pending.push).messages += static_cast<std::uint32_t>(by_owner.size()) - 1;
  const PushValues whole =
      RowByRow({pending.codec, pending.values}, desk_->tables.at(pending.table).dim, pending.keys.count);
  for (const auto& [owner, which] : by_owner) {
    Pending part = pending;
    part.pull_message = RequestId(0);
    part.frame = Buffer();
    part.keys = SelectKeys(pending.keys, pending.frame, which, &part.frame);
    part.codec = whole.codec;
    part.values = SelectValues(pending.keys, whole.values, which);
    Enqueue(std::move(part));
  }
}

void ClientPushes::Reroute() {
  std::map<Order, Pending> old;
  old.swap(messages_);
  lanes_.clear();
  for (PartitionLog& log : partitions_) log.waiting.clear();
  for (auto& [order, pending] : old) {
    if (pending.attempt.value != 0) ++desk_->counters.repeats;
    pending_bytes_ -= pending.bytes();
    pushes_.at(pending.push).bytes -= pending.bytes();
    std::map<ShardId, std::vector<std::uint32_t>> by_owner;
    for (std::uint32_t i = 0; i < pending.keys.sections.size(); ++i) {
      const Section& section = pending.keys.sections[i];
      if (section.sequence > partitions_[section.partition.value].acked)
        by_owner[desk_->OwnerOf(section.partition)].push_back(i);
    }
    const bool whole = by_owner.size() == 1 && by_owner.begin()->second.size() == pending.keys.sections.size();
    if (whole) {
      Enqueue(std::move(pending));
    } else {
      Split(pending, by_owner);
    }
  }
}

std::uint64_t ClientPushes::Hash() const {
  std::uint64_t hash = pending_bytes_;
  for (const PartitionLog& log : partitions_) hash = HashCombine(HashCombine(hash, log.issued.value), log.acked.value);
  for (const Lane& lane : lanes_) hash = HashCombine(HashCombine(hash, lane.credit.in_flight()), lane.due);
  return hash;
}

}  // namespace tarn::worker

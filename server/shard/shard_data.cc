// The shard and the workers: pushes, pulls and ticks.
#include <fmt/format.h>

#include <algorithm>

#include "core/hash.h"
#include "core/limits.h"
#include "server/shard/data_message.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

namespace {

Pull PullOf(const PushPull& both) {
  Pull pull{both.pull_request, both.push.table, both.pull_clock, both.pull_codec, both.push.keys};
  pull.keys.list = 0;  // the push has brought it
  return pull;
}

}  // namespace

void Shard::Impl::OnData(Peer from, Message message) {
  if (!joined_ || Paused()) return;
  TakeOver(&message, IsAppliedAtOnce(message) ? Part::kKeys : Part::kAll);
  DecodeParts(&message);
  if (rows_->tier() != nullptr) {
    TendTier();
    if (stopped_ || !failure_ || Waits(from, message)) return;
  }
  Handle(from, std::move(message));
}

// Whether nothing of the message is kept, and no check depends on its values: then its rows may be taken from where
// they lie, in memory shared with its worker.
bool Shard::Impl::IsAppliedAtOnce(const Message& message) const {
  const auto* push = std::get_if<Push>(&message.body);
  if (push == nullptr || push->codec == ValueCodec::kTopK || logging_ || rows_->tier() != nullptr) return false;
  const TableSpec* table = rows_->FindTable(push->table);
  return table != nullptr && table->consistency.apply == ApplyMode::kImmediate;
}

// The worker can write to memory that it shares while the shard reads it. So keys are always copied before they are
// decoded and checked: a key that changed behind its check would be written outside of its partition's rows.
void Shard::Impl::TakeOver(Message* message, Part part) {
  const auto copy = [](Buffer* payload) {
    if (payload->lent()) *payload = Buffer::Copy(payload->data(), payload->size());
  };
  copy(&message->keys);
  if (part == Part::kAll) copy(&message->values);
}

// Rule N5: a shard that does not hear the scheduler may have been given up. Clients repeat; what waits in the gate
// stays.
bool Shard::Impl::Paused() const { return now_ - heard_ > lease_us_; }

void Shard::Impl::DecodeParts(Message* message) {
  PutKeys(message);
  PutValues(message);
}

// Rules W2, W3: a message whose keys are coded, or named as a list that is held, becomes one that brings them as they
// are. What cannot be read stays, and is refused when it is.
void Shard::Impl::PutKeys(Message* message) {
  KeyList* keys = nullptr;
  if (auto* pull = std::get_if<Pull>(&message->body)) keys = &pull->keys;
  if (auto* push = std::get_if<Push>(&message->body)) keys = &push->keys;
  if (auto* both = std::get_if<PushPull>(&message->body)) keys = &both->push.keys;
  if (auto* soon = std::get_if<Prefetch>(&message->body)) keys = &soon->keys;
  // Nothing is made for whom it will be refused.
  if (keys == nullptr || !CheckSender(*message)) return;
  if (keys->count * sizeof(Key) + message->values.size() > limits::kMessageBytesMax) return;
  DecodeDelta(keys, &message->keys);
  if (keys->codec != KeyCodec::kHeld) return;
  const KeyLists::List* held = lists_.Find(message->sender.incarnation, keys->list);
  if (held == nullptr || held->count != keys->count) return;
  keys->codec = held->codec;
  keys->first_key = held->first_key;
  keys->list = 0;  // it is held already
  message->keys = held->frame;
}

// Rule W5, likewise: from here on the values of a push are rows.
void Shard::Impl::PutValues(Message* message) {
  Push* push = std::get_if<Push>(&message->body);
  if (auto* both = std::get_if<PushPull>(&message->body)) push = &both->push;
  if (push == nullptr || push->codec != ValueCodec::kTopK || !CheckSender(*message)) return;
  if (const TableSpec* table = rows_->FindTable(push->table)) DecodeTopK(*table, push, &message->values);
}

void Shard::Impl::HoldKeys(Incarnation incarnation, const KeyList& keys, const Buffer& frame) {
  if (keys.list != 0) lists_.Keep(incarnation, keys, frame);
}

void Shard::Impl::Handle(Peer from, Message message) {
  auto handle = [&]() -> Status {
    const auto member = CheckSender(message);
    if (!member) return std::unexpected(member.error());
    if (auto* pull = std::get_if<Pull>(&message.body)) return OnPull(from, std::move(*pull), message);
    if (auto* push = std::get_if<Push>(&message.body)) return OnPush(from, *push, message, **member);
    if (auto* tick = std::get_if<Tick>(&message.body)) return OnTick(from, *tick, message, **member);
    if (auto* both = std::get_if<PushPull>(&message.body)) {
      TARN_RETURN_IF_ERROR(OnPush(from, both->push, message, **member));
      // The push is answered: what is wrong with the pull is told of the pull alone.
      Pull pull = PullOf(*both);
      const RequestId request = pull.request;
      if (auto status = OnPull(from, std::move(pull), message); !status)
        Refuse(from, Pull{.request = request}, status.error());
      return {};
    }
    if (const auto* piece = std::get_if<PutBlob>(&message.body)) return OnPutBlob(from, *piece, message);
    if (const auto* wanted = std::get_if<GetBlob>(&message.body)) return OnGetBlob(from, *wanted, message);
    if (std::holds_alternative<Prefetch>(message.body)) return {};  // its rows are on their way, or in memory
    return Fail(ErrorCode::kUnsupported, fmt::format("{}: not for a shard", BodyName(message.body)));
  };
  if (auto status = handle(); !status) Refuse(from, message.body, status.error());
}

// Rule E3, up to the incarnation.
Expected<const Cohort::Member*> Shard::Impl::CheckSender(const Message& message) const {
  if (message.job != job_) return Fail(ErrorCode::kWrongJob, "the message is of another job");
  if (message.sender.role != Role::kWorker)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: not from a worker", BodyName(message.body)));
  if (message.epoch != view_.routes.epoch)
    return Fail(ErrorCode::kStaleEpoch,
                fmt::format("epoch {}: the shard's is {}", message.epoch.value, view_.routes.epoch.value));
  return cohort_.Check(message.sender);
}

void Shard::Impl::Refuse(Peer to, const Body& body, const Error& error) {
  switch (error.code) {
    case ErrorCode::kStaleEpoch: ++counters_.refused_epoch; break;
    case ErrorCode::kFenced: ++counters_.refused_fenced; break;
    default: ++counters_.refused_other;
  }
  auto refuse = [&](RequestId request) {
    Send(to, ErrorReply{request, error.code, error.message, view_.routes.epoch});
  };
  if (const auto* pull = std::get_if<Pull>(&body)) refuse(pull->request);
  if (const auto* push = std::get_if<Push>(&body)) refuse(push->request);
  if (const auto* both = std::get_if<PushPull>(&body)) {
    refuse(both->push.request);
    refuse(both->pull_request);
  }
  if (std::holds_alternative<Tick>(body)) refuse(RequestId(0));
}

Status Shard::Impl::OnTick(Peer from, const Tick& tick, const Message& message, const Cohort::Member& member) {
  if (tick.clock > member.tick + limits::kClocksAheadMax)
    return Fail(ErrorCode::kInvalidArgument, fmt::format("tick to {} from {}: at most {} clocks at once",
                                                         tick.clock.value, member.tick.value, limits::kClocksAheadMax));
  const Clock before = cohort_.minimum();
  const Incarnation incarnation = message.sender.incarnation;
  const bool news = logging_ && cohort_.IsNews(incarnation, tick);
  if (news) Log(EncodeRecord(LoggedTick{incarnation, tick}));
  cohort_.Tick(incarnation, tick);
  AnswerWhenDurable(from, incarnation, TickAck{tick.clock}, news);
  if (cohort_.minimum() != before) Advance();
  return {};
}

// Rule E3, the rest: the table, the counts, the keys.
Expected<std::span<const Key>> Shard::Impl::CheckedKeys(const Push& push, const Message& message,
                                                        const Cohort::Member& member) {
  const TableSpec* table = rows_->FindTable(push.table);
  if (table == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("table {}: unknown", push.table.value));
  auto keys = ReadKeys(push.keys, message.keys, RowBytes(*table, push.codec), &keys_);
  if (!keys) return keys;
  TARN_RETURN_IF_ERROR(CheckPush(push, message.values, *table));
  TARN_RETURN_IF_ERROR(rows_->CheckKeys(push.table, push.keys.sections, *keys));
  if (push.clock < member.entry.join || push.clock > cohort_.minimum() + limits::kClocksAheadMax)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("push of clock {}: the worker joined at {}, the minimum clock is {}", push.clock.value,
                            member.entry.join.value, cohort_.minimum().value));
  return keys;
}

Status Shard::Impl::OnPush(Peer from, const Push& push, const Message& message, const Cohort::Member& member) {
  const auto keys = CheckedKeys(push, message, member);
  if (!keys) return std::unexpected(keys.error());
  const Incarnation incarnation = message.sender.incarnation;
  HoldKeys(incarnation, push.keys, message.keys);
  const bool fits = MayTake(push, *rows_->FindTable(push.table), message);

  PushAck ack{push.request, {}};
  taken_.clear();
  for (const Section& section : push.keys.sections) {
    const ErrorCode code = Take(section, incarnation, fits);
    const Sequence expected(rows_->Find(section.partition)->watermarks().Of(incarnation).value + 1);
    ack.sections.push_back({section.partition, section.sequence, code, expected});
  }
  if (!fits && NeverFits(push, ack)) return {};
  const bool any = std::ranges::find(taken_, true) != taken_.end();
  if (any) LogPush(push, message, *keys);
  Perform(push, message, *keys);
  AnswerWhenDurable(from, incarnation, std::move(ack), any);
  if (any) AnswerAfterPush(incarnation);
  return {};
}

// What a push does to the state, of the sections taken.
void Shard::Impl::Perform(const Push& push, const Message& message, std::span<const Key> keys) {
  const bool aggregated = rows_->FindTable(push.table)->consistency.apply == ApplyMode::kAggregated;
  const bool closed = aggregated && push.clock < cohort_.minimum();
  for (std::size_t s = 0; s < taken_.size(); ++s) {
    if (!taken_[s]) continue;
    const auto& [partition, count, sequence] = push.keys.sections[s];
    if (closed)
      observer_->OnPushVoided(message.sender.incarnation, partition, sequence, push.clock);
    else
      observer_->OnPushApplied(message.sender.incarnation, partition, sequence, push.clock);
  }
  if (!aggregated) {
    Apply(push, message, keys);
  } else if (!closed) {
    Gather(push, message);
  }
}

// Whether there is room now for what is new of this push.
bool Shard::Impl::MayTake(const Push& push, const TableSpec& table, const Message& message) const {
  if (table.consistency.apply == ApplyMode::kAggregated)
    return push.clock < cohort_.minimum() || BucketFits(push.clock, message);
  // Rule K1: what is applied at once and belongs behind the cut waits for it.
  return !pending_cut_ || !pending_cut_->at_clock || push.clock < pending_cut_->clock;
}

// Rule E2 for one section: what to answer; taken_ says whether it is new and was counted.
ErrorCode Shard::Impl::Take(const Section& section, Incarnation incarnation, bool fits) {
  taken_.push_back(false);
  Watermarks& watermarks = rows_->Find(section.partition)->watermarks();
  switch (watermarks.Judge(incarnation, section.sequence)) {
    case Watermarks::Order::kRepeated: ++counters_.pushes_repeated; return ErrorCode::kOk;
    case Watermarks::Order::kBeyond: ++counters_.pushes_out_of_order; return ErrorCode::kOutOfOrder;
    case Watermarks::Order::kNext: break;
  }
  if (!fits) {
    ++counters_.refused_other;
    return ErrorCode::kOverloaded;
  }
  watermarks.Advance(incarnation);
  taken_.back() = true;
  ++counters_.pushes;
  counters_.push_rows += section.count;
  return ErrorCode::kOk;
}

// Rule A1: the sections taken, in one call for each run of them.
void Shard::Impl::Apply(const Push& push, const Message& message, std::span<const Key> keys) {
  const std::span<const Section> sections(push.keys.sections);
  const std::size_t row_bytes = RowBytes(*rows_->FindTable(push.table), push.codec);
  // The log holds the sections taken alone.
  const auto first = static_cast<std::size_t>(std::ranges::find(taken_, true) - taken_.begin());
  if (first == sections.size()) return;
  const std::uint64_t which = HashCombine(message.sender.rank, sections[first].sequence.value);
  std::size_t key = 0;
  for (std::size_t s = 0; s < sections.size();) {
    const std::size_t first_section = s;
    const std::size_t first_key = key;
    for (; s < sections.size() && taken_[s]; ++s) key += sections[s].count;
    if (s != first_section) {
      Note(rows_->Apply(push.table, sections.subspan(first_section, s - first_section),
                   keys.subspan(first_key, key - first_key), push.codec, message.values.data() + first_key * row_bytes,
                   push.clock, which));
      cohort_.NotePushed(message.sender.incarnation, push.clock);
    }
    for (; s < sections.size() && !taken_[s]; ++s) key += sections[s].count;
  }
}

// Rule A2: the sections taken, into their clock's bucket.
void Shard::Impl::Gather(const Push& push, const Message& message) {
  const std::size_t row_bytes = RowBytes(*rows_->FindTable(push.table), push.codec);
  // All of the message stays as long as a part of it does, and is counted with the first.
  std::size_t uncounted = message.keys.size() + message.values.size();
  for (std::size_t s = 0; s < push.keys.sections.size(); ++s)
    if (taken_[s]) uncounted -= std::min(uncounted, push.keys.sections[s].count * (sizeof(Key) + row_bytes));
  std::size_t key = 0;
  for (std::size_t s = 0; s < push.keys.sections.size(); ++s) {
    const Section& section = push.keys.sections[s];
    if (taken_[s] && section.count != 0)
      buckets_.Add(push.clock, {.table = push.table,
                                .partition = section.partition,
                                .rank = WorkerRank(message.sender.rank),
                                .incarnation = message.sender.incarnation,
                                .sequence = section.sequence,
                                .count = section.count,
                                .key_codec = push.keys.codec,
                                .first_key = push.keys.first_key + key,
                                .keys = message.keys,
                                .key_offset = key,
                                .codec = push.codec,
                                .values = message.values,
                                .value_offset = key * row_bytes,
                                .bytes = section.count * (sizeof(Key) + row_bytes) + std::exchange(uncounted, 0)});
    key += section.count;
  }
}

// The clock that closes next may take twice as much: all others wait for it.
bool Shard::Impl::BucketFits(Clock clock, const Message& message) const {
  const std::size_t times = clock == cohort_.minimum() ? 2 : 1;
  return buckets_.bytes() + message.keys.size() + message.values.size() <= times * options_.bucket_bytes_max;
}

// Rule A2: the clock that closes next waits for this push, and nothing makes room before it closes, unless a worker is
// dead. The job cannot go on: the shard ends it.
bool Shard::Impl::NeverFits(const Push& push, const PushAck& ack) {
  const TableSpec& table = *rows_->FindTable(push.table);
  const bool refused = std::ranges::any_of(
      ack.sections, [](const SectionAck& section) { return section.code == ErrorCode::kOverloaded; });
  if (!refused || table.consistency.apply != ApplyMode::kAggregated || push.clock != cohort_.minimum() ||
      !cohort_.Fenced().empty())
    return false;
  StopWith(
      ErrorCode::kTooLarge,
      fmt::format("shard {}: the pushes of clock {} do not fit in memory: {} bytes of aggregated pushes wait for their "
                  "clock, and one of {} rows for table '{}' is refused; expected at most {} bytes for each shard. "
                  "Lower train.batch_rows, raise fleet.servers or fleet.shards, or use a smaller push_codec",
                  options_.shard.value, push.clock.value, buckets_.bytes(), push.keys.count, table.name,
                  2 * options_.bucket_bytes_max));
  return true;
}

Status Shard::Impl::OnPull(Peer from, Pull pull, const Message& message) {
  const TableSpec* table = rows_->FindTable(pull.table);
  if (table == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("table {}: unknown", pull.table.value));
  TARN_RETURN_IF_ERROR(CheckPull(pull));
  const auto keys = ReadKeys(pull.keys, message.keys, RowBytes(*table, pull.codec), &keys_);
  if (!keys) return std::unexpected(keys.error());
  TARN_RETURN_IF_ERROR(rows_->CheckKeys(pull.table, pull.keys.sections, *keys));
  const Clock wanted = WantedMinimum(table->consistency, pull.clock);
  const Incarnation incarnation = message.sender.incarnation;
  HoldKeys(incarnation, pull.keys, message.keys);
  const std::size_t parked_before = parked_.size();
  parked_.Drop(incarnation, pull.request);
  TARN_RETURN_IF_ERROR(AnswerOrPark({.from = from,
                                     .incarnation = incarnation,
                                     .wanted_minimum = wanted,
                                     .clock_open = false,
                                     .pull = std::move(pull),
                                     .keys = message.keys}));
  if (parked_.size() != parked_before) ++counters_.pulls_parked;
  return {};
}

Status Shard::Impl::AnswerOrPark(ParkedPull parked) {
  parked.clock_open = cohort_.minimum() >= parked.wanted_minimum;
  if (parked.clock_open && HasOwnPushes(parked)) return Answer(parked);
  if (parked_.Park(std::move(parked))) return {};
  return Fail(ErrorCode::kOverloaded,
              fmt::format("{} pulls of {} bytes are waiting already", parked_.size(), parked_.bytes()));
}

bool Shard::Impl::HasOwnPushes(const ParkedPull& parked) const {
  return std::ranges::all_of(parked.pull.keys.sections, [&](const Section& section) {
    return rows_->Find(section.partition)->watermarks().Of(parked.incarnation) >= section.sequence;
  });
}

Status Shard::Impl::Answer(const ParkedPull& parked) {
  const Pull& pull = parked.pull;
  const std::size_t row_bytes = RowBytes(*rows_->FindTable(pull.table), pull.codec);
  const auto keys = ReadKeys(pull.keys, parked.keys, row_bytes, &keys_);
  TARN_CHECK(keys.has_value(), "a pull is checked before it is parked");
  Message reply = Make(PullReply{pull.request, pull.table, cohort_.minimum(), pull.codec, pull.keys.count});
  auto values = replies_.Allocate(parked.incarnation, keys->size() * row_bytes);
  if (!values) return std::unexpected(values.error());
  reply.values = std::move(*values);
  Note(rows_->Gather(pull.table, pull.keys.sections, *keys, pull.codec, reply.values.data()));
  out_->push_back({parked.from, std::move(reply)});
  ++counters_.pulls;
  counters_.pull_rows += pull.keys.count;
  observer_->OnPullServed(parked.incarnation, pull.table, pull.clock, cohort_.minimum());
  return {};
}

// Pulls that waited for the clock look at the pushes that they wait for now.
void Shard::Impl::AnswerOpened() { AnswerWaiting(parked_.TakeOpened(cohort_.minimum())); }

void Shard::Impl::AnswerAfterPush(Incarnation incarnation) { AnswerWaiting(parked_.TakeWaitingForPush(incarnation)); }

// There is room to park them again: they were parked before.
void Shard::Impl::AnswerWaiting(std::vector<ParkedPull> parked) {
  for (ParkedPull& waiting : parked) {
    const Peer from = waiting.from;
    const RequestId request = waiting.pull.request;
    if (auto status = AnswerOrPark(std::move(waiting)); !status) Refuse(from, Pull{.request = request}, status.error());
  }
}

}  // namespace tarn::server

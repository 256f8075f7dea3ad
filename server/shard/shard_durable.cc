// The shard and its log: what is logged, what waits until it is durable, and the state as a segment begins with it
// (rules L1 to L4).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/hash.h"
#include "server/shard/data_message.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

namespace {

// The sections taken of a push, and only they; all of them share the message's bytes.
LoggedPush TakenOf(const Push& push, const Message& message, std::span<const Key> keys, const std::vector<bool>& taken,
                   std::size_t row_bytes) {
  LoggedPush out{message.sender.incarnation, WorkerRank(message.sender.rank), push, message.keys, message.values};
  if (std::ranges::find(taken, false) == taken.end()) return out;
  out.push.keys = {.codec = KeyCodec::kRaw};
  for (std::size_t s = 0; s < taken.size(); ++s) {
    if (!taken[s]) continue;
    out.push.keys.sections.push_back(push.keys.sections[s]);
    out.push.keys.count += push.keys.sections[s].count;
  }
  out.keys = Buffer::Allocate(out.push.keys.count * sizeof(Key));
  out.values = Buffer::Allocate(out.push.keys.count * row_bytes);
  std::size_t from = 0, to = 0;
  for (std::size_t s = 0; s < taken.size(); ++s) {
    const std::size_t count = push.keys.sections[s].count;
    if (taken[s] && count != 0) {
      std::memcpy(out.keys.data() + to * sizeof(Key), keys.data() + from, count * sizeof(Key));
      std::memcpy(out.values.data() + to * row_bytes, message.values.data() + from * row_bytes, count * row_bytes);
      to += count;
    }
    from += count;
  }
  return out;
}

// One gathered section as a push of its own.
LoggedGathered GatheredOf(Clock clock, const Contribution& c, std::size_t row_bytes) {
  LoggedGathered out{{.incarnation = c.incarnation, .rank = c.rank}};
  Push& push = out.push.push;
  push.table = c.table;
  push.clock = clock;
  push.codec = c.codec;
  push.keys = {c.key_codec, c.first_key, c.count, {{c.partition, c.count, c.sequence}}};
  if (c.key_codec == KeyCodec::kRaw)
    out.push.keys = Buffer::Copy(c.keys.data() + c.key_offset * sizeof(Key), c.count * sizeof(Key));
  out.push.values = Buffer::Copy(c.values.data() + c.value_offset, c.count * row_bytes);
  return out;
}

LoggedView ViewOf(const View& view, CheckpointId newest_order) {
  return {view.version, view.workers, view.tables, std::max(newest_order, view.checkpoint.id)};
}

}  // namespace

// Rule L1: what tells of the state leaves once the inputs behind it are durable.
void Shard::Impl::SendWhenDurable(Peer to, Body body) {
  if (IsDurable()) return Send(to, std::move(body));
  held_.Add(appended_, {to, Make(std::move(body))});
}

// Of a push or a tick. first: it changed the state.
void Shard::Impl::AnswerWhenDurable(Peer to, Incarnation worker, Body body, bool first) {
  if (IsDurable()) return Send(to, std::move(body));
  held_.AddAnswer(appended_, {to, Make(std::move(body))}, worker, first);
}

// A disk that does not answer keeps back what is new, and must not make the shard seem dead: what it said last it may
// say again.
void Shard::Impl::SayAlive(Heartbeat beat) {
  if (IsDurable())
    said_ = beat;
  else
    Send(kSchedulerPeer, said_.value_or(Heartbeat()));  // of view 0: it lives, and confirms nothing yet
  SendWhenDurable(kSchedulerPeer, std::move(beat));
}

void Shard::Impl::OnLogSynced(TimeUs now, Outbox* out) {
  if (stopped_ || !logging_) return;
  now_ = now;
  out_ = out;
  const auto synced = options_.log->TakeSynced();
  if (!synced)
    return StopWith(synced.error().code,
                    fmt::format("shard {}: log: {}", options_.shard.value, synced.error().message));
  synced_ = *synced;
  held_.TakeDurable(
      synced_,
      [this](Outgoing outgoing) {
        if (const auto* beat = std::get_if<Heartbeat>(&outgoing.message.body)) said_ = *beat;
        out_->push_back(std::move(outgoing));
      },
      [this](Peer to, Body body) { Send(to, std::move(body)); });
}

void Shard::Impl::Log(LogRecord record) { appended_ = options_.log->Append(std::move(record)); }

void Shard::Impl::LogPush(const Push& push, const Message& message, std::span<const Key> keys) {
  if (!logging_) return;
  const std::size_t row_bytes = RowBytes(*rows_->FindTable(push.table), push.codec);
  Log(EncodeRecord(TakenOf(push, message, keys, taken_, row_bytes)));
}

// Rule L4: what a whole checkpoint holds is not needed in the log.
void Shard::Impl::LogView(const View& view) {
  if (!logging_) return;
  Log(EncodeRecord(ViewOf(view, newest_order_)));
  if (view.whole <= dropped_before_) return;
  dropped_before_ = view.whole;
  options_.log->DropBefore(view.whole);
}

void Shard::Impl::BeginSegment(CheckpointId cut) {
  if (!logging_) return;
  appended_ = options_.log->BeginSegment(cut, EncodeRecord(MakeHead()));
  for (const auto& [clock, bucket] : buckets_.buckets())
    for (const Contribution& c : bucket)
      Log(EncodeRecord(GatheredOf(clock, c, RowBytes(*rows_->FindTable(c.table), c.codec))));
}

LoggedHead Shard::Impl::MakeHead() const {
  LoggedHead head{.partition_bits = rows_->partition_bits(),
                  .view = ViewOf(view_, newest_order_),
                  .minimum = cohort_.minimum(),
                  .watermarks = WatermarksOf(*rows_),
                  .hash = SoftHash(),
                  .rows_clock = rows_->expiry().clock(),
                  .rows_seconds = rows_->expiry().seconds()};
  for (const auto& [incarnation, m] : cohort_.members())
    head.members.push_back({incarnation, m.tick, m.position, m.pushed, m.earlier});
  for (const auto& [clock, bucket] : buckets_.buckets()) head.gathered += bucket.size();
  return head;
}

// Clocks that may close have done so, or do before the next input.
std::uint64_t Shard::Impl::BucketsHash() const {
  std::uint64_t state = 0;
  for (const auto& [clock, bucket] : buckets_.buckets())
    for (const Contribution& c : bucket)
      if (clock >= cohort_.minimum())
        for (std::uint64_t word : {clock.value, std::uint64_t{c.table.value}, std::uint64_t{c.partition.value},
                                   c.incarnation.value, c.sequence.value, std::uint64_t{c.count}})
          state = HashCombine(state, word);
  return state;
}

std::uint64_t Shard::Impl::SoftHash() const {
  std::uint64_t state = HashCombine(cohort_.minimum().value, BucketsHash());
  auto add = [&state](auto... words) { ((state = HashCombine(state, words)), ...); };
  add(view_.version.value, newest_order_.value);
  for (const auto& [incarnation, member] : cohort_.members()) {
    add(incarnation.value, member.entry.rank.value, std::uint64_t(member.entry.state), member.entry.join.value,
        member.entry.end.value, member.tick.value, member.position.lease.value, member.position.rows,
        member.pushed.value);
    for (const TickPoint& point : member.earlier)
      add(point.clock.value, point.position.lease.value, point.position.rows);
  }
  for (const auto& [incarnation, watermarks] : WatermarksOf(*rows_)) {
    add(incarnation.value);
    for (Sequence watermark : watermarks) add(watermark.value);
  }
  return state;
}

Expected<std::uint64_t> Shard::Impl::DurableHash() const {
  const auto rows = rows_->StateHash();
  if (!rows) return rows;
  return HashCombine(*rows, SoftHash());
}

}  // namespace tarn::server

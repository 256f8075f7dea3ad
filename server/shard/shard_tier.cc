// Rows on disk: messages that need some wait for them beside the shard's work, in the gate, and what they need is on
// its way meanwhile. What slips through (a row evicted between its fetch and its use, a clock that closes over many
// rows) is read by the row store when it is met.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/shard/data_message.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

Expected<std::unique_ptr<Residency>> Shard::Impl::MakeTier(const Job& job, std::size_t partitions) {
  if (!options_.make_tier) return nullptr;
  auto tier = options_.make_tier(job);
  if (!tier) return std::unexpected(tier.error());
  if (!tier->store) return nullptr;
  BoundOthers(tier->limit_bytes);
  return std::make_unique<Residency>(
      ResidencyOptions{.limit_bytes = tier->limit_bytes, .places = static_cast<std::uint32_t>(partitions)},
      std::move(tier->store));
}

// Rows come first: each list saves its worker a few bytes, each row a look at the disk; and a message that finds no
// room comes again. (What is gathered must have room, or no clock closes; and so must replies.)
void Shard::Impl::BoundOthers(std::size_t memory_limit) {
  constexpr std::size_t kListsShare = 32, kGateShare = 16, kParkedShare = 4, kLeast = std::size_t{1} << 20;
  lists_.SetBound(std::min(options_.held_lists_bytes_max, memory_limit / kListsShare));
  gate_.SetBound(std::min(options_.waiting_bytes_max, std::max(kLeast, memory_limit / kGateShare)));
  parked_.SetBound(std::min(options_.parked_bytes_max, std::max(kLeast, memory_limit / kParkedShare)));
}

std::size_t Shard::Impl::WaitingBytes() const {
  return buckets_.bytes() + parked_.bytes() + replies_.bytes() + gate_.bytes() + lists_.bytes();
}

void Shard::Impl::OnTier(TimeUs now, Outbox* out) {
  if (stopped_ || rows_->tier() == nullptr) return;
  now_ = now;
  out_ = out;
  TendTier();
}

void Shard::Impl::TendTier() {
  if (!Note(rows_->Tend(WaitingBytes()))) return;
  if (gate_.size() == 0 || Paused()) return;
  gate_.BeginFetches([this](const Message& message) { return BeginFetch(message); });
  for (ColdGate::Waiting& ready :
       gate_.TakeReady([this](FetchTicket ticket) { return rows_->tier()->Ended(ticket); })) {
    if (stopped_ || !failure_) return;
    DecodeParts(&ready.message);  // its sender may not have been known when it came
    Handle(ready.from, std::move(ready.message));
  }
}

FetchTicket Shard::Impl::BeginFetch(const Message& message) {
  if (!rows_->tier()->HasRoom()) return ColdGate::kNotBegun;
  const auto needed = RowsNeeded(message);
  return needed ? FetchRowsOf(*needed, message) : 0;
}

// Whether the message has been taken: it waits for rows on disk, or behind one of its peer that does, or was refused.
// A pull that has to wait for its clock, and a push that is only gathered, go on: their rows come meanwhile.
bool Shard::Impl::Waits(Peer from, Message& message) {
  if (gate_.TakesRepetition(from, message)) return true;  // the one that waits will be answered
  const auto needed = RowsNeeded(message);
  FetchTicket ticket = 0;
  if (needed && rows_->tier()->HasRoom())
    ticket = FetchRowsOf(*needed, message);
  else if (needed && needed->now)
    ticket = ColdGate::kNotBegun;
  const bool rows_come = needed && needed->now && !rows_->tier()->Ended(ticket);
  if (!rows_come && (!gate_.Holds(from) || std::holds_alternative<Prefetch>(message.body))) return false;
  if (gate_.Add(from, &message, rows_come ? ticket : 0)) {
    counters_.waited_for_rows += rows_come ? 1 : 0;
    return true;
  }
  Refuse(from, message.body,
         {ErrorCode::kOverloaded,
          fmt::format("{} messages of {} bytes wait for rows on disk already", gate_.size(), gate_.bytes())});
  return true;
}

// The rows of sparse tables that a message of a live worker is about.
std::optional<Shard::Impl::NeededRows> Shard::Impl::RowsNeeded(const Message& message) const {
  const auto needed = [&](TableId table, ValueCodec codec, const KeyList& keys, auto now) -> std::optional<NeededRows> {
    const TableSpec* spec = rows_->FindTable(table);
    if (spec == nullptr || spec->kind != TableKind::kSparse || !CheckSender(message)) return {};
    return NeededRows{spec, codec, &keys, now(*spec)};
  };
  const auto open = [this](Clock use) {
    return [this, use](const TableSpec& spec) { return cohort_.minimum() >= WantedMinimum(spec.consistency, use); };
  };
  const auto applied = [](const TableSpec& spec) { return spec.consistency.apply == ApplyMode::kImmediate; };
  if (const auto* pull = std::get_if<Pull>(&message.body))
    return needed(pull->table, pull->codec, pull->keys, open(pull->clock));
  if (const auto* push = std::get_if<Push>(&message.body)) return needed(push->table, push->codec, push->keys, applied);
  if (const auto* both = std::get_if<PushPull>(&message.body))
    return needed(both->push.table, both->push.codec, both->push.keys,
                  [&](const TableSpec& spec) { return applied(spec) || open(both->pull_clock)(spec); });
  if (const auto* soon = std::get_if<Prefetch>(&message.body))
    return needed(soon->table, ValueCodec::kFp32, soon->keys, [](const TableSpec&) { return false; });
  return {};
}

// A message that is not sound is refused when it is handled.
FetchTicket Shard::Impl::FetchRowsOf(const NeededRows& needed, const Message& message) {
  if (!rows_->HasCold(needed.table->id)) return 0;
  const auto keys = ReadKeys(*needed.keys, message.keys, RowBytes(*needed.table, needed.codec), &keys_);
  if (!keys || !rows_->CheckKeys(needed.table->id, needed.keys->sections, *keys)) return 0;
  return rows_->FetchCold(needed.table->id, needed.keys->sections, *keys);
}

}  // namespace tarn::server

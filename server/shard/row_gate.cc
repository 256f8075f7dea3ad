#include "server/shard/row_gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/shard/data_message.h"

namespace tarn::server {

bool RowGate::Waits(Peer from, Message& message) {
  if (gate_.TakesRepetition(from, message)) return true;  // the waiting message will be answered
  const Residency& tier = *context_.rows->tier();
  const std::vector<Needed> needed = RowsNeeded(message);
  const bool now = std::ranges::any_of(needed, &Needed::now);
  FetchTicket ticket = 0;
  if (tier.HasRoom())
    ticket = Fetch(needed);
  else if (now)
    ticket = ColdGate::kNotBegun;
  const bool rows_pending = now && !tier.Ended(ticket);
  if (!rows_pending && (!gate_.Holds(from) || std::holds_alternative<Prefetch>(message.body))) return false;
  if (gate_.Add(from, &message, rows_pending ? ticket : 0)) {
    context_.counters->waited_for_rows += rows_pending ? 1 : 0;
    return true;
  }
  context_.senders->Refuse(from, message.body,
                           {ErrorCode::kOverloaded, fmt::format("{} messages of {} bytes wait for rows on disk already",
                                                                gate_.size(), gate_.bytes())});
  return true;
}

std::vector<ColdGate::Waiting> RowGate::TakeReady() {
  gate_.BeginFetches([this](const Message& message) { return BeginFetch(message); });
  return gate_.TakeReady([this](FetchTicket ticket) { return context_.rows->tier()->Ended(ticket); });
}

bool RowGate::IsOpen(const TableSpec& spec, Incarnation worker, Clock use) const {
  return (*context_.policies)[spec.id].MayAnswer(worker, use, context_.clocks->cohort());
}

// The rows of sparse tables that a message of a live worker uses.
std::vector<RowGate::Needed> RowGate::RowsNeeded(const Message& message) const {
  std::vector<Needed> needed;
  if (!context_.senders->Check(message)) return needed;
  const Incarnation worker = message.sender.incarnation;
  const auto add = [&](TableId table, ValueCodec codec, const KeyList& keys, auto now) {
    const TableSpec* spec = context_.rows->FindTable(table);
    if (spec != nullptr && spec->kind == TableKind::kSparse) needed.push_back({spec, codec, &keys, now(*spec)});
  };
  if (const auto* pull = std::get_if<Pull>(&message.body))
    for (const PullPart& table : pull->tables)
      add(table.table, table.codec, table.keys,
          [&](const TableSpec& spec) { return IsOpen(spec, worker, pull->clock); });
  if (const auto* push = std::get_if<Push>(&message.body))
    for (const PushPart& table : push->tables)
      add(table.table, table.codec, table.keys,
          [](const TableSpec& spec) { return spec.consistency.apply == ApplyMode::kImmediate; });
  if (const auto* prefetch = std::get_if<Prefetch>(&message.body))
    add(prefetch->table, ValueCodec::kFp32, prefetch->keys, [](const TableSpec&) { return false; });
  return needed;
}

// Returns the last ticket, which covers all fetches because they end in order. 0: nothing is fetched.
FetchTicket RowGate::Fetch(std::span<const Needed> needed) {
  FetchTicket last = 0;
  for (const Needed& of_table : needed) last = std::max(last, Fetch(of_table));
  return last;
}

// Fetches nothing for an invalid message, which is rejected when it is handled.
FetchTicket RowGate::Fetch(const Needed& needed) {
  const TableId table = needed.table->id;
  if (!context_.rows->HasCold(table)) return 0;
  const auto keys = ReadKeys(*needed.keys, RowBytes(*needed.table, needed.codec), &keys_);
  if (!keys || !context_.rows->CheckKeys(table, needed.keys->sections, *keys)) return 0;
  return context_.rows->FetchCold(table, needed.keys->sections, *keys);
}

FetchTicket RowGate::BeginFetch(const Message& message) {
  if (!context_.rows->tier()->HasRoom()) return ColdGate::kNotBegun;
  return Fetch(RowsNeeded(message));
}

}  // namespace tarn::server

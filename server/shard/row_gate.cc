#include "server/shard/row_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/hash.h"
#include "server/shard/data_message.h"

namespace tarn::server {
namespace {

constexpr std::size_t kQueuedKeysMax = 1 << 16;  // for whose rows a turn looks, on behalf of queued fetches

}  // namespace

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
  const bool is_prefetch = std::holds_alternative<Prefetch>(message.body);
  std::vector<QueuedFetch> fetches;
  if (!now && !is_prefetch && !tier.HasRoom()) fetches = ToQueue(needed);
  const bool rows_pending = now && !tier.Ended(ticket);
  if (!rows_pending && (!gate_.Holds(from) || is_prefetch)) {
    Queue(std::move(fetches));
    return false;
  }
  if (gate_.Add(from, &message, rows_pending ? ticket : 0)) {
    Queue(std::move(fetches));
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
  BeginQueued();
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

std::size_t RowGate::BytesQueued(const KeyList& keys) {
  return sizeof(QueuedFetch) + keys.sections.size() * sizeof(Section) + keys.frame.size();
}

// Copies those keys for which there is memory; the rows of the others are read when they are used.
std::vector<RowGate::QueuedFetch> RowGate::ToQueue(std::span<const Needed> needed) const {
  std::vector<QueuedFetch> fetches;
  std::size_t bytes = queued_bytes_;
  for (const Needed& of_table : needed) {
    const TableId table = of_table.table->id;
    const KeyList& keys = *of_table.keys;
    const std::string_view frame(reinterpret_cast<const char*>(keys.frame.data()), keys.frame.size());
    const std::uint64_t hash = HashBytes(frame, HashCombine(table.value, keys.first_key));
    if (!context_.rows->HasCold(table) || queued_hashes_.contains(hash)) continue;
    bytes += BytesQueued(keys);
    if (bytes > queued_bytes_max_) break;
    fetches.push_back({table, of_table.codec, keys, hash});
    // Its own copy: the frame is a part of the message, and would keep all of it.
    fetches.back().keys.frame = Buffer::Copy(keys.frame.data(), keys.frame.size());
  }
  return fetches;
}

void RowGate::Queue(std::vector<QueuedFetch> fetches) {
  for (QueuedFetch& fetch : fetches) {
    queued_bytes_ += BytesQueued(fetch.keys);
    queued_hashes_.insert(fetch.hash);
    queued_.push_back(std::move(fetch));
  }
}

// Looks up a bounded number of keys; the next call goes on.
void RowGate::BeginQueued() {
  std::size_t keys = 0;
  for (; !queued_.empty() && keys < kQueuedKeysMax && context_.rows->tier()->HasRoom(); queued_.pop_front()) {
    const QueuedFetch& first = queued_.front();
    Fetch(Needed{context_.rows->FindTable(first.table), first.codec, &first.keys, false});
    keys += first.keys.count;
    queued_bytes_ -= BytesQueued(first.keys);
    queued_hashes_.erase(first.hash);
  }
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

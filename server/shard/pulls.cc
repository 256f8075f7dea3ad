#include "server/shard/pulls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/limits.h"
#include "server/shard/data_message.h"

namespace tarn::server {

Pulls::Pulls(const ShardOptions& options, const Context& context)
    : context_(context),
      parked_(options.parked_pulls_max, options.parked_bytes_max),
      replies_(options.reply_bytes_max, options.reply_peer_bytes_max) {}

Status Pulls::OnPull(Peer from, const Sender& sender, Pull pull) {
  TARN_RETURN_IF_ERROR(Check(pull));
  const Incarnation worker = sender.incarnation;
  for (const PullPart& table : pull.tables)
    if (table.keys.list != 0) context_.lists->Keep(worker, table.keys);
  const std::size_t parked_before = parked_.size();
  parked_.Drop(worker, pull.request);
  const Clock wanted = PolicyOf(pull).WantedClock(worker, pull.clock, context_.clocks->cohort());
  TARN_RETURN_IF_ERROR(AnswerOrPark({.from = from,
                                     .rank = WorkerRank(sender.rank),
                                     .incarnation = worker,
                                     .wanted_clock = wanted,
                                     .clock_open = false,
                                     .pull = std::move(pull)}));
  if (parked_.size() > parked_before) ++context_.counters->pulls_parked;
  return {};
}

// Rule E3: checks the tables, counts and keys, that all rows fit in one frame, and that the tables have the same
// consistency, so that one clock opens all of them.
Status Pulls::Check(const Pull& pull) {
  const TableSpec* first = nullptr;
  std::size_t reply_bytes = 0;
  for (const PullPart& part : pull.tables) {
    const TableSpec* table = context_.rows->FindTable(part.table);
    if (table == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("table {}: unknown", part.table.value));
    TARN_RETURN_IF_ERROR(CheckPull(part));
    const auto keys = KeysOf(part);
    if (!keys) return std::unexpected(keys.error());
    TARN_RETURN_IF_ERROR(context_.rows->CheckKeys(part.table, part.keys.sections, *keys));
    reply_bytes = PadTo8(reply_bytes) + keys->size() * RowBytesOf(part);
    if (first == nullptr) first = table;
    if (table->consistency != first->consistency)
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tables '{}' and '{}' in one pull: expected tables with the same consistency",
                              first->name, table->name));
  }
  if (reply_bytes <= limits::kFrameBytesMax) return {};
  return Fail(ErrorCode::kTooLarge, fmt::format("rows of {} bytes in one pull: a frame has at most {} bytes",
                                                reply_bytes, limits::kFrameBytesMax));
}

std::size_t Pulls::RowBytesOf(const PullPart& table) const {
  return RowBytes(*context_.rows->FindTable(table.table), table.codec);
}

Expected<std::span<const Key>> Pulls::KeysOf(const PullPart& table) {
  return ReadKeys(table.keys, RowBytesOf(table), &keys_);
}

Status Pulls::AnswerOrPark(ParkedPull parked) {
  parked.clock_open = PolicyOf(parked.pull).OpenClock(context_.clocks->cohort()) >= parked.wanted_clock;
  if (parked.clock_open && HasOwnPushes(parked)) return Answer(parked);
  if (parked_.Park(std::move(parked))) return {};
  return Fail(ErrorCode::kOverloaded,
              fmt::format("{} pulls of {} bytes are waiting already", parked_.size(), parked_.bytes()));
}

bool Pulls::HasOwnPushes(const ParkedPull& parked) const {
  return std::ranges::all_of(parked.pull.tables, [&](const PullPart& table) {
    return std::ranges::all_of(table.keys.sections, [&](const Section& section) {
      return context_.rows->Find(section.partition)->watermarks().Of(parked.incarnation) >= section.sequence;
    });
  });
}

// The rows of all tables are gathered into one buffer, the values frame of the reply.
Status Pulls::Answer(const ParkedPull& parked) {
  const Pull& pull = parked.pull;
  const Clock open = PolicyOf(pull).OpenClock(context_.clocks->cohort());
  std::size_t bytes = 0;
  for (const PullPart& table : pull.tables) bytes = PadTo8(bytes) + table.keys.count * RowBytesOf(table);
  auto values = replies_.Allocate(parked.incarnation, bytes);
  if (!values) return std::unexpected(values.error());
  PullReply body{pull.request, open, {}};
  body.tables.reserve(pull.tables.size());
  std::size_t at = 0;
  for (const PullPart& table : pull.tables) {
    const auto keys = KeysOf(table);
    TARN_CHECK(keys.has_value(), "a pull is checked before it is parked");
    const std::vector<Section>& sections = table.keys.sections;
    const std::size_t begin = PadTo8(at), size = keys->size() * RowBytesOf(table);
    if (begin != at) std::memset(values->data() + at, 0, begin - at);
    ReplyPart rows{table.table, table.codec, table.keys.count, {}, values->Slice(begin, size)};
    rows.versions.reserve(sections.size());
    for (const Section& section : sections)
      rows.versions.push_back(context_.rows->Find(section.partition)->VersionOf(table.table));
    rows.on_disk = context_.rows->HasCold(table.table);
    if (!context_.stop->Check(context_.rows->Gather(table.table, sections, *keys, table.codec, rows.values.data())))
      return {};
    body.tables.push_back(std::move(rows));
    context_.counters->pull_rows += table.keys.count;
    at = begin + size;
  }
  context_.step->Send(parked.from, std::move(body));
  ++context_.counters->pulls;
  context_.observer->OnPullServed(parked.rank, parked.incarnation, pull, open);
  return {};
}

// Pulls whose clock is open may still have to wait for pushes.
void Pulls::AnswerOpened() {
  const Cohort& cohort = context_.clocks->cohort();
  AnswerWaiting(parked_.TakeOpened(context_.policies->OpenClockMax(cohort), [&](const ParkedPull& parked) {
    return PolicyOf(parked.pull).OpenClock(cohort) >= parked.wanted_clock;
  }));
}

void Pulls::AnswerAfterPush(Incarnation worker) { AnswerWaiting(parked_.TakeWaitingForPush(worker)); }

// Parks pulls again that must wait further. There is room, because they were parked before, unless the bound was
// lowered.
void Pulls::AnswerWaiting(std::vector<ParkedPull> parked) {
  for (ParkedPull& waiting : parked) {
    if (context_.stop->step_failed()) return;
    const Peer from = waiting.from;
    const RequestId request = waiting.pull.request;
    if (auto status = AnswerOrPark(std::move(waiting)); !status)
      context_.senders->Refuse(from, Pull{.request = request}, status.error());
  }
}

}  // namespace tarn::server

#include "server/shard/pulls.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "server/shard/data_message.h"

namespace tarn::server {

Pulls::Pulls(const ShardOptions& options, const Context& context)
    : context_(context),
      parked_(options.parked_pulls_max, options.parked_bytes_max),
      replies_(options.reply_bytes_max, options.reply_peer_bytes_max) {}

Status Pulls::OnPull(Peer from, Pull pull, const Message& message) {
  const TableSpec* table = context_.rows->FindTable(pull.table);
  if (table == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("table {}: unknown", pull.table.value));
  TARN_RETURN_IF_ERROR(CheckPull(pull));
  const auto keys = ReadKeys(pull.keys, message.keys, RowBytes(*table, pull.codec), &keys_);
  if (!keys) return std::unexpected(keys.error());
  TARN_RETURN_IF_ERROR(context_.rows->CheckKeys(pull.table, pull.keys.sections, *keys));
  const Incarnation worker = message.sender.incarnation;
  if (pull.keys.list != 0) context_.lists->Keep(worker, pull.keys, message.keys);
  const std::size_t parked_before = parked_.size();
  parked_.Drop(worker, pull.request);
  const Clock wanted = (*context_.policies)[pull.table].WantedClock(worker, pull.clock, context_.clocks->cohort());
  TARN_RETURN_IF_ERROR(AnswerOrPark({.from = from,
                                     .rank = WorkerRank(message.sender.rank),
                                     .incarnation = worker,
                                     .wanted_clock = wanted,
                                     .clock_open = false,
                                     .pull = std::move(pull),
                                     .keys = message.keys}));
  if (parked_.size() != parked_before) ++context_.counters->pulls_parked;
  return {};
}

Status Pulls::AnswerOrPark(ParkedPull parked) {
  const ConsistencyPolicy& policy = (*context_.policies)[parked.pull.table];
  parked.clock_open = policy.OpenClock(context_.clocks->cohort()) >= parked.wanted_clock;
  if (parked.clock_open && HasOwnPushes(parked)) return Answer(parked);
  if (parked_.Park(std::move(parked))) return {};
  return Fail(ErrorCode::kOverloaded,
              fmt::format("{} pulls of {} bytes are waiting already", parked_.size(), parked_.bytes()));
}

bool Pulls::HasOwnPushes(const ParkedPull& parked) const {
  return std::ranges::all_of(parked.pull.keys.sections, [&](const Section& section) {
    return context_.rows->Find(section.partition)->watermarks().Of(parked.incarnation) >= section.sequence;
  });
}

Status Pulls::Answer(const ParkedPull& parked) {
  const Pull& pull = parked.pull;
  const std::size_t row_bytes = RowBytes(*context_.rows->FindTable(pull.table), pull.codec);
  const auto keys = ReadKeys(pull.keys, parked.keys, row_bytes, &keys_);
  TARN_CHECK(keys.has_value(), "a pull is checked before it is parked");
  const Clock open = (*context_.policies)[pull.table].OpenClock(context_.clocks->cohort());
  PullReply body{pull.request, pull.table, open, pull.codec, pull.keys.count, {}};
  body.versions.reserve(pull.keys.sections.size());
  for (const Section& section : pull.keys.sections)
    body.versions.push_back(context_.rows->Find(section.partition)->VersionOf(pull.table));
  Message reply = context_.step->Make(std::move(body));
  auto values = replies_.Allocate(parked.incarnation, keys->size() * row_bytes);
  if (!values) return std::unexpected(values.error());
  reply.values = std::move(*values);
  if (!context_.stop->Check(
          context_.rows->Gather(pull.table, pull.keys.sections, *keys, pull.codec, reply.values.data())))
    return {};
  context_.step->Send({parked.from, std::move(reply)});
  ++context_.counters->pulls;
  context_.counters->pull_rows += pull.keys.count;
  context_.observer->OnPullServed(parked.rank, parked.incarnation, pull, open);
  return {};
}

// Pulls whose clock is open may still have to wait for pushes.
void Pulls::AnswerOpened() {
  const Cohort& cohort = context_.clocks->cohort();
  const TablePolicies& policies = *context_.policies;
  AnswerWaiting(parked_.TakeOpened(policies.OpenClockMax(cohort), [&](const ParkedPull& parked) {
    return policies[parked.pull.table].OpenClock(cohort) >= parked.wanted_clock;
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

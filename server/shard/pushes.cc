#include "server/shard/pushes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "core/limits.h"
#include "server/shard/data_message.h"
#include "server/shard/logged_inputs.h"

namespace tarn::server {

namespace {

std::unexpected<Error> Corrupt(std::string what) { return Fail(ErrorCode::kCorrupt, std::move(what)); }

std::uint64_t StalenessOf(const Push& push) {
  return push.clock.value - std::min(push.clock.value, push.pulled_clock.value);
}

Message MessageOf(const LoggedPush& logged) {
  Message message;
  message.sender = {Role::kWorker, logged.rank.value, logged.incarnation};
  message.keys = logged.keys;
  message.values = logged.values;
  return message;
}

}  // namespace

// The rest of rule E3: checks the table, the counts and the keys.
Expected<std::span<const Key>> Pushes::CheckedKeys(const Push& push, const Message& message,
                                                   const Cohort::Member& member) {
  const TableSpec* table = context_.rows->FindTable(push.table);
  if (table == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("table {}: unknown", push.table.value));
  auto keys = ReadKeys(push.keys, message.keys, PushRowBytes(*table, push), &keys_);
  if (!keys) return keys;
  TARN_RETURN_IF_ERROR(CheckPush(push, message.values, *table));
  TARN_RETURN_IF_ERROR(context_.rows->CheckKeys(push.table, push.keys.sections, *keys));
  const Clock minimum = context_.clocks->minimum();
  if (push.clock < member.entry.join || push.clock > minimum + limits::kClocksAheadMax)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("push of clock {}: the worker joined at {}, the minimum clock is {}", push.clock.value,
                            member.entry.join.value, minimum.value));
  return keys;
}

Expected<bool> Pushes::OnPush(Peer from, const Push& push, const Message& message, const Cohort::Member& member) {
  const auto keys = CheckedKeys(push, message, member);
  if (!keys) return std::unexpected(keys.error());
  const Incarnation worker = message.sender.incarnation;
  if (push.keys.list != 0) context_.lists->Keep(worker, push.keys, message.keys);
  const TableSpec& table = *context_.rows->FindTable(push.table);
  const bool fits = MayTake(push, table, message);

  PushAck ack{push.request, {}};
  taken_.clear();
  for (const Section& section : push.keys.sections) {
    const ErrorCode code = Take(section, worker, fits);
    const Sequence watermark = context_.rows->Find(section.partition)->watermarks().Of(worker);
    ack.sections.push_back({section.partition, section.sequence, code, Sequence(watermark.value + 1)});
  }
  if (!fits && NeverFits(push, ack)) return false;
  const auto first = std::ranges::find(taken_, true);
  const bool any = first != taken_.end();
  if (any) context_.observer->OnPushTaken(WorkerRank(message.sender.rank), push, std::size_t(first - taken_.begin()));
  if (any && context_.outbox->logging()) context_.outbox->Append(TakenOf(push, message, *keys, taken_, table));
  if (!context_.stop->Check(Perform(push, message, *keys))) return false;
  context_.outbox->Answer(from, worker, std::move(ack), any);
  return any;
}

// Whether the shard may accept new sections of this push now. Aggregated table: there is room for them, or they are
// discarded. Immediate table: they need not wait for a cut (rule K1).
bool Pushes::MayTake(const Push& push, const TableSpec& table, const Message& message) const {
  if (table.consistency.apply == ApplyMode::kAggregated)
    return (*context_.policies)[push.table].Discards(message.sender.incarnation, push.clock,
                                                     context_.clocks->cohort()) ||
           BucketFits(push, message);
  return context_.may_apply(push.clock);
}

// The next clock to close may use twice as much, because all others wait for it.
bool Pushes::BucketFits(const Push& push, const Message& message) const {
  const std::size_t times = push.clock == OpenClock(push.table) ? 2 : 1;
  return context_.clocks->buckets().bytes() + message.keys.size() + message.values.size() <= times * bucket_bytes_max_;
}

Clock Pushes::OpenClock(TableId table) const {
  return (*context_.policies)[table].OpenClock(context_.clocks->cohort());
}

// Whether the push can never fit (rule A2): the next clock to close waits for it, and no room becomes free before that
// clock closes, unless a worker is being fenced. The shard then ends the job.
bool Pushes::NeverFits(const Push& push, const PushAck& ack) {
  const TableSpec& table = *context_.rows->FindTable(push.table);
  const bool refused = std::ranges::any_of(
      ack.sections, [](const SectionAck& section) { return section.code == ErrorCode::kOverloaded; });
  if (!refused || table.consistency.apply != ApplyMode::kAggregated || push.clock != OpenClock(push.table) ||
      !context_.clocks->cohort().Fenced().empty())
    return false;
  context_.stop->Stop(
      {ErrorCode::kTooLarge,
       fmt::format("the pushes of clock {} do not fit in memory: {} bytes of aggregated pushes wait for their "
                   "clock, and one of {} rows for table '{}' is refused; expected at most {} bytes for each shard. "
                   "Lower train.batch_rows, raise fleet.servers or fleet.shards, or use a smaller push_codec",
                   push.clock.value, context_.clocks->buckets().bytes(), push.keys.count, table.name,
                   2 * bucket_bytes_max_)});
  return true;
}

// Rule E2 for one section. Returns the answer; taken_ records whether the section is new and was accepted.
ErrorCode Pushes::Take(const Section& section, Incarnation worker, bool fits) {
  taken_.push_back(false);
  Watermarks& watermarks = context_.rows->Find(section.partition)->watermarks();
  switch (watermarks.Judge(worker, section.sequence)) {
    case Watermarks::Order::kRepeated: ++context_.counters->pushes_repeated; return ErrorCode::kOk;
    case Watermarks::Order::kBeyond: ++context_.counters->pushes_out_of_order; return ErrorCode::kOutOfOrder;
    case Watermarks::Order::kNext: break;
  }
  if (!fits) {
    ++context_.counters->refused_other;
    return ErrorCode::kOverloaded;
  }
  watermarks.Advance(worker);
  taken_.back() = true;
  ++context_.counters->pushes;
  context_.counters->push_rows += section.count;
  return ErrorCode::kOk;
}

// Applies or gathers the accepted sections of a push. Only gradients can come too late: rows are assigned and deleted
// at once if their clock has closed (rule C8).
Status Pushes::Perform(const Push& push, const Message& message, std::span<const Key> keys) {
  const Incarnation worker = message.sender.incarnation;
  const bool late = (*context_.policies)[push.table].Discards(worker, push.clock, context_.clocks->cohort());
  const bool discarded = late && push.action == PushAction::kStep;
  for (std::size_t s = 0; s < taken_.size(); ++s) {
    if (!taken_[s]) continue;
    const Section& section = push.keys.sections[s];
    if (discarded) {
      context_.rows->CountDiscarded(section.count);
      context_.observer->OnPushVoided(worker, section.partition, section.sequence, push.clock);
    } else {
      context_.observer->OnPushApplied(worker, section.partition, section.sequence, push.clock);
    }
  }
  if (discarded) return {};
  if (context_.rows->FindTable(push.table)->consistency.apply == ApplyMode::kImmediate)
    return Apply(push, message, keys);
  Gather(push, message);
  return context_.clocks->CloseGathered(push.table, push.clock);
}

// Applies the accepted sections (rule A1), one call per run of consecutive ones.
Status Pushes::Apply(const Push& push, const Message& message, std::span<const Key> keys) {
  const std::span<const Section> sections(push.keys.sections);
  const std::uint32_t dim = context_.rows->FindTable(push.table)->dim;
  // The first accepted section identifies the push, because the log contains only accepted sections.
  const auto first = static_cast<std::size_t>(std::ranges::find(taken_, true) - taken_.begin());
  if (first == sections.size()) return {};
  PushedRows rows{.codec = push.codec,
                  .gradients = message.values.data(),
                  .clock = push.clock,
                  .push = HashCombine(message.sender.rank, sections[first].sequence.value),
                  .staleness = StalenessOf(push),
                  .worker = WorkerRank(message.sender.rank),
                  .action = push.action};
  if (push.pulled) {
    rows.pulled_codec = *push.pulled;
    rows.pulled = message.values.data() + push.keys.count * CodecRowBytes(push.codec, dim);
  }
  std::size_t key = 0;
  for (std::size_t s = 0; s < sections.size();) {
    const std::size_t first_section = s;
    const std::size_t first_key = key;
    for (; s < sections.size() && taken_[s]; ++s) key += sections[s].count;
    if (s != first_section) {
      PushedRows run = rows;
      run.Skip(first_key, dim);
      TARN_RETURN_IF_ERROR(context_.rows->Apply(push.table, sections.subspan(first_section, s - first_section),
                                                keys.subspan(first_key, key - first_key), run));
      context_.clocks->NotePushed(message.sender.incarnation, push.clock);
    }
    for (; s < sections.size() && !taken_[s]; ++s) key += sections[s].count;
  }
  return {};
}

// Adds the accepted sections to the bucket of their clock (rule A2).
void Pushes::Gather(const Push& push, const Message& message) {
  const std::size_t row_bytes = PushRowBytes(*context_.rows->FindTable(push.table), push);
  // A section keeps the memory of the whole message, which is counted with the first section.
  std::size_t uncounted = message.keys.size() + message.values.size();
  for (std::size_t s = 0; s < push.keys.sections.size(); ++s)
    if (taken_[s]) uncounted -= std::min(uncounted, push.keys.sections[s].count * (sizeof(Key) + row_bytes));
  std::size_t key = 0;
  for (std::size_t s = 0; s < push.keys.sections.size(); ++s) {
    const Section& section = push.keys.sections[s];
    if (taken_[s] && section.count != 0)
      context_.clocks->Gather(push.clock,
                              {.table = push.table,
                               .partition = section.partition,
                               .rank = WorkerRank(message.sender.rank),
                               .incarnation = message.sender.incarnation,
                               .sequence = section.sequence,
                               .version = section.version,
                               .pulled_clock = push.pulled_clock,
                               .count = section.count,
                               .key_codec = push.keys.codec,
                               .first_key = push.keys.first_key + key,
                               .keys = message.keys,
                               .key_offset = key,
                               .action = push.action,
                               .codec = push.codec,
                               .values = message.values,
                               .value_offset = key * row_bytes,
                               .bytes = section.count * (sizeof(Key) + row_bytes) + std::exchange(uncounted, 0)});
    key += section.count;
  }
}

Status Pushes::Replay(const LoggedPush& logged) {
  const Message message = MessageOf(logged);
  const auto member = context_.clocks->cohort().Check(message.sender);
  if (!member) return Corrupt("a push: " + member.error().message);
  const auto keys = CheckedKeys(logged.push, message, **member);
  if (!keys) return Corrupt("a push: " + keys.error().message);
  taken_.assign(logged.push.keys.sections.size(), true);
  for (const Section& section : logged.push.keys.sections) {
    Watermarks& watermarks = context_.rows->Find(section.partition)->watermarks();
    if (watermarks.Judge(logged.incarnation, section.sequence) != Watermarks::Order::kNext)
      return Corrupt(fmt::format("push {} of incarnation {} to partition {}, expected {}", section.sequence.value,
                                 logged.incarnation.value, section.partition.value,
                                 watermarks.Of(logged.incarnation).value + 1));
    watermarks.Advance(logged.incarnation);
  }
  const Status performed = Perform(logged.push, message, *keys);
  context_.stop->Check(performed);
  return performed;
}

Status Pushes::Replay(const LoggedGathered& gathered) {
  const LoggedPush& logged = gathered.push;
  const Message message = MessageOf(logged);
  const auto& members = context_.clocks->cohort().members();
  const auto member = members.find(logged.incarnation);
  if (member == members.end())
    return Corrupt(
        fmt::format("a gathered push of incarnation {}, which is not in the view", logged.incarnation.value));
  if (const auto keys = CheckedKeys(logged.push, message, member->second); !keys)
    return Corrupt("a gathered push: " + keys.error().message);
  taken_.assign(logged.push.keys.sections.size(), true);
  Gather(logged.push, message);
  return {};
}

}  // namespace tarn::server

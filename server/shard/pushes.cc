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

std::uint64_t StalenessOf(Clock clock, const PushPart& push) {
  return clock.value - std::min(clock.value, push.pulled_clock.value);
}

Sender SenderOf(const LoggedPush& logged) { return {Role::kWorker, logged.rank.value, logged.incarnation}; }

std::size_t BytesOf(const PushPart& push) { return push.keys.frame.size() + push.values.size(); }

std::size_t BytesOf(const Push& push) {
  std::size_t bytes = 0;
  for (const PushPart& table : push.tables) bytes += BytesOf(table);
  return bytes;
}

bool IsLive(const Cohort::Member& member) { return member.entry.state != WorkerState::kEnded; }

}  // namespace

// The rest of rule E3: checks the table, the counts and the keys.
Status Pushes::Check(const Part& part, const Cohort::Member& member) {
  const PushPart& push = part.push;
  const TableSpec* table = context_.rows->FindTable(push.table);
  if (table == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("table {}: unknown", push.table.value));
  const auto keys = ReadKeys(push.keys, PushRowBytes(*table, push), &keys_);
  if (!keys) return std::unexpected(keys.error());
  TARN_RETURN_IF_ERROR(CheckPush(push, *table));
  TARN_RETURN_IF_ERROR(context_.rows->CheckKeys(push.table, push.keys.sections, *keys));
  const Clock minimum = context_.clocks->minimum();
  if (part.clock < member.entry.join || part.clock > minimum + limits::kClocksAheadMax)
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("push of clock {}: expected one from {}, at which the worker joined, to {}, which is {} beyond "
                    "the minimum clock",
                    part.clock.value, member.entry.join.value, (minimum + limits::kClocksAheadMax).value,
                    limits::kClocksAheadMax));
  return {};
}

// The keys of a checked part. Valid until the next call.
std::span<const Key> Pushes::KeysOf(const PushPart& push) {
  const auto keys = ReadKeys(push.keys, PushRowBytes(*context_.rows->FindTable(push.table), push), &keys_);
  TARN_CHECK(keys.has_value(), "the keys of a push are checked before its rows change");
  return *keys;
}

// Nothing changes unless all tables of the push are valid. The new sections of all tables are accepted, then logged,
// then applied or gathered.
Expected<bool> Pushes::OnPush(Peer from, const Sender& sender, const Push& push, const Cohort::Member& member) {
  for (const PushPart& table : push.tables) TARN_RETURN_IF_ERROR(Check({sender, push.clock, table}, member));
  const std::size_t bytes = BytesOf(push);
  if (taken_.size() < push.tables.size()) taken_.resize(push.tables.size());
  PushAck ack{push.request, {}};
  for (std::size_t t = 0; t < push.tables.size(); ++t) {
    const Part part{sender, push.clock, push.tables[t]};
    if (part.push.keys.list != 0) context_.lists->Keep(part.worker(), part.push.keys);
    const bool fits = MayTake(part, bytes);
    const std::size_t acks = ack.sections.size();
    TakeSections(part, fits, &taken_[t], &ack.sections);
    if (!fits && NeverFits(part, std::span(ack.sections).subspan(acks))) return false;
    if (fits && !refused_.empty()) NoteAccepted(part);
  }
  const auto parts = std::span(taken_).first(push.tables.size());
  std::size_t first = 0;  // index of the first new section, over the sections of all tables
  bool any = false;
  for (std::size_t t = 0; t < parts.size() && !any; ++t) {
    const auto at = std::ranges::find(parts[t], true);
    any = at != parts[t].end();
    first += static_cast<std::size_t>(at - parts[t].begin());
  }
  if (any) context_.observer->OnPushTaken(WorkerRank(sender.rank), push, first);
  if (any && context_.outbox->logging())
    for (std::size_t t = 0; t < parts.size(); ++t)
      if (std::ranges::find(parts[t], true) != parts[t].end())
        context_.outbox->Append(TakenOf(sender, push.clock, push.tables[t], KeysOf(push.tables[t]), parts[t],
                                        *context_.rows->FindTable(push.tables[t].table)));
  uncounted_ = bytes;
  for (std::size_t t = 0; t < parts.size(); ++t)
    uncounted_ -= std::min(uncounted_, BytesToGather({sender, push.clock, push.tables[t]}, parts[t]));
  for (std::size_t t = 0; t < parts.size(); ++t)
    if (!context_.stop->Check(Perform({sender, push.clock, push.tables[t]}, parts[t]))) return false;
  context_.outbox->Answer(from, sender.incarnation, std::move(ack), any);
  return any;
}

// Whether the shard may accept new sections of this part now: they would not be lost after a checkpoint that may be the
// last one (rule K12), and there is room for the message in an aggregated table, or the clock is before that of any
// pending cut in an immediate table (rule K1). Gradients that are discarded are always accepted.
bool Pushes::MayTake(const Part& part, std::size_t message_bytes) const {
  const TableSpec& table = *context_.rows->FindTable(part.push.table);
  const bool aggregated = table.consistency.apply == ApplyMode::kAggregated;
  const bool late =
      aggregated && (*context_.policies)[table.id].Discards(part.worker(), part.clock, context_.clocks->cohort());
  if (late && part.push.action == PushAction::kStep) return true;
  if (!context_.may_accept(part.clock)) return false;
  return aggregated ? late || BucketFits(part, message_bytes) : context_.may_apply(part.clock);
}

// The next clock to close may use twice as much, because all others wait for it.
bool Pushes::BucketFits(const Part& part, std::size_t message_bytes) const {
  const std::size_t times = part.clock == OpenClock(part.push.table) ? 2 : 1;
  return context_.clocks->buckets().bytes() + message_bytes <= times * bucket_bytes_max_;
}

Clock Pushes::OpenClock(TableId table) const {
  return (*context_.policies)[table].OpenClock(context_.clocks->cohort());
}

void Pushes::NoteAccepted(const Part& part) {
  const auto refused = refused_.find(part.push.table);
  if (refused != refused_.end() && refused->second.clock == part.clock)
    std::erase(refused->second.workers, part.worker());
}

// Returns the number of live workers that were refused.
std::size_t Pushes::NoteRefused(const Part& part) {
  Refused& refused = refused_[part.push.table];
  if (refused.clock != part.clock) refused = {part.clock, {}};
  const auto& members = context_.clocks->cohort().members();
  std::erase_if(refused.workers, [&](Incarnation other) {
    const auto at = members.find(other);
    return other == part.worker() || at == members.end() || !IsLive(at->second);
  });
  refused.workers.push_back(part.worker());
  return refused.workers.size();
}

// If the part was refused and can never fit (rule A2), stops the shard, which ends the job, and returns true. A part
// never fits if the next clock to close waits for it and no worker is being fenced, because no room becomes free before
// that clock closes. With b backup workers (C8) that clock closes without b of its workers, if others are left.
bool Pushes::NeverFits(const Part& part, std::span<const SectionAck> acks) {
  const TableSpec& table = *context_.rows->FindTable(part.push.table);
  const bool refused =
      std::ranges::any_of(acks, [](const SectionAck& section) { return section.code == ErrorCode::kOverloaded; });
  if (!refused || table.consistency.apply != ApplyMode::kAggregated || part.clock != OpenClock(part.push.table) ||
      !context_.clocks->cohort().Fenced().empty() || !context_.may_accept(part.clock))
    return false;
  const std::size_t refused_workers = NoteRefused(part);
  const auto& members = context_.clocks->cohort().members();
  const auto live = std::ranges::count_if(members, [](const auto& member) { return IsLive(member.second); });
  if (refused_workers < static_cast<std::size_t>(live) && refused_workers <= table.consistency.backup_workers)
    return false;
  context_.stop->Stop(
      {ErrorCode::kTooLarge,
       fmt::format("the pushes of clock {} do not fit in memory: {} bytes of aggregated pushes wait for their "
                   "clock, and one of {} rows for table '{}' is refused; expected at most {} bytes for each shard. "
                   "Lower train.batch_rows, raise fleet.servers or fleet.shards, or use a smaller push_codec",
                   part.clock.value, context_.clocks->buckets().bytes(), part.push.keys.count, table.name,
                   2 * bucket_bytes_max_)});
  return true;
}

// Rule E2 for the sections of one part. Adds the answers.
void Pushes::TakeSections(const Part& part, bool fits, Taken* taken, std::vector<SectionAck>* acks) {
  taken->clear();
  for (const Section& section : part.push.keys.sections) {
    Watermarks& watermarks = context_.rows->Find(section.partition)->watermarks();
    const Sequence before = watermarks.Of(part.worker());
    const ErrorCode code = Take(section, part.worker(), fits, &watermarks);
    const Sequence watermark = watermarks.Of(part.worker());
    taken->push_back(watermark != before);
    acks->push_back({section.partition, section.sequence, code, Sequence(watermark.value + 1)});
  }
}

// Advances the watermark if the section is new and accepted. Returns the answer.
ErrorCode Pushes::Take(const Section& section, Incarnation worker, bool fits, Watermarks* watermarks) {
  switch (watermarks->Judge(worker, section.sequence)) {
    case Watermarks::Order::kRepeated: ++context_.counters->pushes_repeated; return ErrorCode::kOk;
    case Watermarks::Order::kBeyond: ++context_.counters->pushes_out_of_order; return ErrorCode::kOutOfOrder;
    case Watermarks::Order::kNext: break;
  }
  if (!fits) {
    ++context_.counters->refused_other;
    return ErrorCode::kOverloaded;
  }
  watermarks->Advance(worker);
  ++context_.counters->pushes;
  context_.counters->push_rows += section.count;
  return ErrorCode::kOk;
}

// Applies or gathers the accepted sections of a part. Gradients of a closed clock are discarded; assignments and
// deletions of a closed clock take effect at once (rule C8).
Status Pushes::Perform(const Part& part, const Taken& taken) {
  const Incarnation worker = part.worker();
  const PushPart& push = part.push;
  const bool late = (*context_.policies)[push.table].Discards(worker, part.clock, context_.clocks->cohort());
  const bool discarded = late && push.action == PushAction::kStep;
  for (std::size_t s = 0; s < taken.size(); ++s) {
    if (!taken[s]) continue;
    const Section& section = push.keys.sections[s];
    if (discarded) {
      context_.rows->counters().discarded += section.count;
      context_.observer->OnPushVoided(worker, section.partition, section.sequence, part.clock);
    } else {
      context_.observer->OnPushApplied(worker, section.partition, section.sequence, part.clock);
    }
  }
  if (discarded) return {};
  if (context_.rows->FindTable(push.table)->consistency.apply == ApplyMode::kImmediate) return Apply(part, taken);
  Gather(part, taken);
  return context_.clocks->CloseGathered(push.table, part.clock);
}

// Applies the accepted sections (rule A1), one call per run of consecutive ones.
Status Pushes::Apply(const Part& part, const Taken& taken) {
  const PushPart& push = part.push;
  const std::span<const Section> sections(push.keys.sections);
  const std::uint32_t dim = context_.rows->FindTable(push.table)->dim;
  // The first accepted section identifies the push, because the log contains only accepted sections.
  const auto first = static_cast<std::size_t>(std::ranges::find(taken, true) - taken.begin());
  if (first == sections.size()) return {};
  const std::span<const Key> keys = KeysOf(push);
  PushedRows rows{.codec = push.codec,
                  .gradients = push.values.data(),
                  .clock = part.clock,
                  .push = HashCombine(part.sender.rank, sections[first].sequence.value),
                  .staleness = StalenessOf(part.clock, push),
                  .worker = WorkerRank(part.sender.rank),
                  .action = push.action};
  if (push.pulled) {
    rows.pulled_codec = *push.pulled;
    rows.pulled = push.values.data() + push.keys.count * CodecRowBytes(push.codec, dim);
  }
  std::size_t key = 0;
  for (std::size_t s = 0; s < sections.size();) {
    const std::size_t first_section = s;
    const std::size_t first_key = key;
    for (; s < sections.size() && taken[s]; ++s) key += sections[s].count;
    if (s != first_section) {
      PushedRows run = rows;
      run.Skip(first_key, dim);
      TARN_RETURN_IF_ERROR(context_.rows->Apply(push.table, sections.subspan(first_section, s - first_section),
                                                keys.subspan(first_key, key - first_key), run));
      context_.clocks->NotePushed(part.worker(), part.clock);
    }
    for (; s < sections.size() && !taken[s]; ++s) key += sections[s].count;
  }
  return {};
}

std::size_t Pushes::BytesToGather(const Part& part, const Taken& taken) const {
  const TableSpec& table = *context_.rows->FindTable(part.push.table);
  if (table.consistency.apply != ApplyMode::kAggregated) return 0;
  std::size_t rows = 0;
  for (std::size_t s = 0; s < taken.size(); ++s) rows += taken[s] ? part.push.keys.sections[s].count : 0;
  return rows * (sizeof(Key) + PushRowBytes(table, part.push));
}

// Adds the accepted sections to the bucket of their clock (rule A2).
void Pushes::Gather(const Part& part, const Taken& taken) {
  const PushPart& push = part.push;
  const KeyList& keys = push.keys;
  const std::size_t row_bytes = PushRowBytes(*context_.rows->FindTable(push.table), push);
  std::size_t key = 0;
  for (std::size_t s = 0; s < keys.sections.size(); ++s) {
    const Section& section = keys.sections[s];
    if (taken[s] && section.count != 0)
      context_.clocks->Gather(part.clock,
                              {.table = push.table,
                               .partition = section.partition,
                               .rank = WorkerRank(part.sender.rank),
                               .incarnation = part.worker(),
                               .sequence = section.sequence,
                               .version = section.version,
                               .pulled_clock = push.pulled_clock,
                               .count = section.count,
                               .key_codec = keys.codec,
                               .first_key = keys.first_key + key,
                               .keys = keys.frame,
                               .key_offset = key,
                               .action = push.action,
                               .codec = push.codec,
                               .values = push.values,
                               .value_offset = key * row_bytes,
                               .bytes = section.count * (sizeof(Key) + row_bytes) + std::exchange(uncounted_, 0)});
    key += section.count;
  }
}

Status Pushes::Replay(const LoggedPush& logged) {
  const Sender sender = SenderOf(logged);
  const Part part{sender, logged.clock, logged.push};
  const auto member = context_.clocks->cohort().Check(sender);
  if (!member) return Corrupt("a push: " + member.error().message);
  if (const Status valid = Check(part, **member); !valid) return Corrupt("a push: " + valid.error().message);
  for (const Section& section : logged.push.keys.sections) {
    Watermarks& watermarks = context_.rows->Find(section.partition)->watermarks();
    if (watermarks.Judge(logged.incarnation, section.sequence) != Watermarks::Order::kNext)
      return Corrupt(fmt::format("push {} of incarnation {} to partition {}, expected {}", section.sequence.value,
                                 logged.incarnation.value, section.partition.value,
                                 watermarks.Of(logged.incarnation).value + 1));
    watermarks.Advance(logged.incarnation);
  }
  const Taken all(logged.push.keys.sections.size(), true);
  uncounted_ = BytesOf(logged.push) - std::min(BytesOf(logged.push), BytesToGather(part, all));
  const Status performed = Perform(part, all);
  context_.stop->Check(performed);
  return performed;
}

Status Pushes::Replay(const LoggedGathered& gathered) {
  const LoggedPush& logged = gathered.push;
  const Sender sender = SenderOf(logged);
  const Part part{sender, logged.clock, logged.push};
  const auto& members = context_.clocks->cohort().members();
  const auto member = members.find(logged.incarnation);
  if (member == members.end())
    return Corrupt(
        fmt::format("a gathered push of incarnation {}, which is not in the view", logged.incarnation.value));
  if (const Status valid = Check(part, member->second); !valid)
    return Corrupt("a gathered push: " + valid.error().message);
  const Taken all(logged.push.keys.sections.size(), true);
  uncounted_ = BytesOf(logged.push) - std::min(BytesOf(logged.push), BytesToGather(part, all));
  Gather(part, all);
  return {};
}

}  // namespace tarn::server

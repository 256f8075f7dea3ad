#include "worker/client/pull_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/hash.h"
#include "core/limits.h"
#include "core/names.h"
#include "worker/client/pulled_rows.h"

namespace tarn::worker {

bool NeedsPulled(const TableSpec& spec) {
  const UpdateRule* rule = FindUpdateRule(spec.optimizer.kind);
  return rule != nullptr && rule->needs_pulled;
}

ValueCodec PulledCodec(const TableSpec& spec) { return IsPlain(spec.pull_codec) ? spec.pull_codec : ValueCodec::kFp32; }

PullRecord::PullRecord(const Plan& plan, Clock use, bool keeps_rows)
    : use_(use), keeps_rows_(keeps_rows), dim_(plan.dim) {
  versions_.reserve(plan.runs.size());
  for (const PlanRun& run : plan.runs) versions_.push_back({run.partition});
  if (keeps_rows) keys_ = plan.keys;
}

std::size_t PullRecord::Find(PartitionId partition) const {
  const auto there = std::ranges::lower_bound(versions_, partition, {}, &Oldest::partition);
  const bool has = there != versions_.end() && there->partition == partition;
  return has ? static_cast<std::size_t>(there - versions_.begin()) : versions_.size();
}

void PullRecord::NoteReply(std::span<const PlanRun> parts, std::span<const Version> versions, Clock min_clock) {
  for (std::size_t i = 0; i < parts.size(); ++i) NoteVersion(parts[i].partition, versions[i]);
  NoteClock(min_clock);
}

void PullRecord::NoteVersion(PartitionId partition, Version version) {
  const std::size_t at = Find(partition);
  if (at == versions_.size()) return;
  versions_[at].version = std::min(versions_[at].version, version);  // kNoVersion is the largest
}

void PullRecord::NoteRows(const PulledRows& rows) {
  if (!keeps_rows_) return;
  if (rows_.empty()) rows_ = Buffer::Allocate(keys_.size() * dim_ * sizeof(float));
  CopyToPlanOrder(rows, dim_, rows_.as_mutable<float>().data());
  for (const PlanRun& run : rows.parts) arrived_ += run.count;
}

Version PullRecord::VersionOf(PartitionId partition) const {
  const std::size_t at = Find(partition);
  return at == versions_.size() ? kNoVersion : versions_[at].version;
}

const float* PullRecord::RowOf(Key key) const {
  if (!HasRows()) return nullptr;
  if (places_.empty())
    for (std::uint32_t i = 0; i < keys_.size(); ++i) places_.emplace(keys_[i], i);
  const auto place = places_.find(key);
  return place == places_.end() ? nullptr : rows_.as<float>().data() + std::size_t{place->second} * dim_;
}

std::shared_ptr<PullRecord> PullMemory::Begin(const Plan& plan, const TableSpec& spec, Clock use) {
  auto& records = tables_[spec.id].records;
  records.push_back(std::make_shared<PullRecord>(plan, use, NeedsPulled(spec)));
  if (records.size() > limits::kPullsRememberedMax) records.pop_front();
  if (records.back()->bytes() == 0) return records.back();
  std::size_t bytes = 0;
  for (const auto& record : records) bytes += record->bytes();
  while (records.size() > 1 && bytes > limits::kPulledBytesRememberedMax) {
    bytes -= records.front()->bytes();
    records.pop_front();
  }
  return records.back();
}

std::shared_ptr<PullRecord> PullMemory::Newest(TableId table, Clock use) {
  const auto found = tables_.find(table);
  if (found == tables_.end()) return nullptr;
  const auto& records = found->second.records;
  const auto record = std::find_if(records.rbegin(), records.rend(), [use](const auto& r) { return r->use() == use; });
  return record == records.rend() ? nullptr : *record;
}

void PullMemory::NoteHistory(TableId table, PartitionId partition, Version version, Clock min_clock, Clock use,
                             std::uint64_t bound) {
  std::deque<Seen>& seen = tables_[table].history[partition];
  // An answer may arrive after newer ones, by another lane or because its request was repeated.
  const auto after = std::ranges::upper_bound(seen, min_clock, {}, &Seen::min_clock);
  if (after != seen.end() && after->version <= version) return;
  auto first = after;
  while (first != seen.begin() && std::prev(first)->version >= version) --first;
  const auto place = seen.erase(first, after);
  if (place == seen.begin() || std::prev(place)->min_clock < min_clock) seen.insert(place, {min_clock, version});
  while (seen.front().min_clock.value + bound < std::min(seen.back().min_clock, use).value) seen.pop_front();
}

// Later calls may ask for an earlier clock, so this forgets nothing.
Version PullMemory::OldestSince(TableId table, PartitionId partition, Clock oldest) const {
  const auto found = tables_.find(table);
  if (found == tables_.end()) return kNoVersion;
  const auto history = found->second.history.find(partition);
  if (history == found->second.history.end()) return kNoVersion;
  const std::deque<Seen>& seen = history->second;
  const auto first = std::ranges::lower_bound(seen, oldest, {}, &Seen::min_clock);
  return first == seen.end() ? seen.back().version : first->version;
}

Expected<PushOrigin> PullMemory::OriginOf(const Plan& plan, const TableSpec& spec, Clock clock, Uses uses) const {
  PushOrigin origin{clock, std::vector<Version>(plan.runs.size(), kNoVersion), {}};
  const auto found = tables_.find(spec.id);
  if (found != tables_.end()) {
    const auto& records = found->second.records;
    for (auto record = records.rbegin(); record != records.rend(); ++record) {
      if (!uses.Has((*record)->use())) continue;
      bool complete = true;
      for (std::size_t i = 0; i < plan.runs.size(); ++i) {
        if (origin.versions[i] == kNoVersion) origin.versions[i] = (*record)->VersionOf(plan.runs[i].partition);
        complete &= origin.versions[i] != kNoVersion;
      }
      origin.seen = std::min(origin.seen, (*record)->seen());
      if (complete) break;
    }
  }
  if (!NeedsPulled(spec)) return origin;
  auto rows = RowsOf(plan, spec, uses, found == tables_.end() ? nullptr : &found->second);
  if (!rows) return std::unexpected(rows.error());
  origin.pulled = std::move(*rows);
  return origin;
}

Expected<Buffer> PullMemory::RowsOf(const Plan& plan, const TableSpec& spec, Uses uses, const Table* table) {
  std::vector<const PullRecord*> records;  // newest first
  if (table != nullptr)
    for (const auto& record : table->records)
      if (uses.Has(record->use())) records.insert(records.begin(), record.get());
  for (const PullRecord* record : records)
    if (record->HasRows() && record->HasKeys(plan.keys)) return record->rows();
  Buffer rows = Buffer::Allocate(plan.keys.size() * plan.dim * sizeof(float));
  float* to = rows.as_mutable<float>().data();
  for (const Key key : plan.keys) {
    const float* row = nullptr;
    for (auto record = records.begin(); record != records.end() && row == nullptr; ++record)
      row = (*record)->RowOf(key);
    if (row == nullptr)
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("table {}: key {} was not pulled for clock {}, or too many pulls ago: {} needs each row "
                              "as it was pulled; pull the row first, and pass the clock of that pull to the push",
                              Quoted(spec.name), key, uses.use.value, spec.optimizer.kind.value));
    std::memcpy(to, row, plan.dim * sizeof(float));
    to += plan.dim;
  }
  return rows;
}

std::uint64_t PullMemory::Hash() const {
  std::uint64_t hash = 0;
  for (const auto& [id, table] : tables_) {
    hash = HashCombine(hash, table.records.size());
    if (!table.records.empty()) hash = HashCombine(hash, table.records.back()->seen().value);
  }
  return hash;
}

}  // namespace tarn::worker

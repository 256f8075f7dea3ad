#include "sim/push_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/hash.h"
#include "core/position.h"

namespace tarn::sim {
namespace {

constexpr double kTolerance = 1e-3;

}  // namespace

void KeysOfRow(const Scenario& scenario, std::uint64_t row, std::vector<Key>* keys) {
  keys->clear();
  SplitMix rng(HashCombine(scenario.seed ^ 0x726f77, row));
  for (std::uint32_t i = 0; i < scenario.keys_per_row; ++i) {
    // Squared, so that some keys are frequent.
    const double u = rng.Unit();
    keys->push_back(Mix64(std::uint64_t(u * u * double(scenario.key_space))));
  }
}

PushCounts::PushCounts(const Scenario& scenario, const Cohorts* cohorts) : scenario_(scenario), cohorts_(cohorts) {
  if (scenario.counts.apply == ApplyMode::kAggregated && scenario.counts_row_codec == ValueCodec::kFp32 &&
      LifeModel::Applies(scenario.life))
    lives_.emplace(scenario.life, TableSalt(scenario.job.job.seed, "counts"));
}

void PushCounts::ResumeFrom(std::map<Key, float> values) {
  base_ = std::move(values);
  lives_.reset();  // the values do not determine the ages of rows
}

double PushCounts::Base(Key key) const {
  const auto it = base_.find(key);
  return it == base_.end() ? 0 : double(it->second);
}

std::size_t PushCounts::OnIssued(Incarnation incarnation, Clock clock, const DataRows& rows,
                                 const std::map<Key, float>* sent) {
  std::map<Key, float> counts;
  if (sent == nullptr) {
    std::vector<Key> keys;
    for (std::uint64_t r = rows.first; r < rows.first + rows.count; ++r) {
      KeysOfRow(scenario_, r, &keys);
      for (Key key : keys) ++counts[key];
    }
    sent = &counts;
  }
  for (const auto& [key, count] : *sent) by_key_[key].push_back({records_.size(), count});
  records_.push_back({incarnation, clock, rows});
  return records_.size() - 1;
}

std::vector<Key> PushCounts::Keys() const {
  std::vector<Key> keys;
  keys.reserve(by_key_.size() + base_.size());
  for (const auto& [key, addends] : by_key_) keys.push_back(key);
  for (const auto& [key, value] : base_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void PushCounts::OnRestored(Clock minimum, std::span<const PartitionId> owned) {
  for (auto& [table, closings] : closings_) closings.OnRestored(minimum, owned);
}

std::string PushCounts::OnTableClosed(TableId table, Clock clock, std::uint32_t divisor,
                                      std::span<const server::Contribution> counted, std::uint32_t backups) {
  return closings_[table].OnClosed(clock, divisor, counted, backups, *cohorts_);
}

double PushCounts::Part(Key key, const Addend& addend) const {
  const Record& record = records_[addend.record];
  if (scenario_.counts.backup_workers == 0) return Counts(record) ? addend.count / cohorts_->SizeAt(record.clock) : 0;
  const View& view = cohorts_->view();
  const auto table = std::ranges::find(view.tables, "counts", &TableSpec::name);
  if (table == view.tables.end()) return 0;
  const auto closings = closings_.find(table->id);
  if (closings == closings_.end()) return 0;
  const Positioner position(*table, TableSalt(scenario_.job.job.seed, table->name));
  return addend.count * closings->second.Share(PartitionOf(position(key), view.routes.partition_bits), record.clock,
                                               record.incarnation);
}

// The sums of all counting pushes to a key, by clock.
std::vector<ClockPart> PushCounts::PartsOf(Key key) const {
  std::map<Clock, double> sums;
  if (const auto it = by_key_.find(key); it != by_key_.end())
    for (const Addend& addend : it->second)
      if (const double part = Part(key, addend); part != 0) sums[records_[addend.record].clock] += part;
  std::vector<ClockPart> parts;
  parts.reserve(sums.size());
  for (const auto& [clock, value] : sums) parts.push_back({clock, value});
  return parts;
}

// The range is wider for a table with a life, whose pushes may have been dropped, and for 16-bit rows, because
// stochastic rounding adds errors.
PushCounts::Range PushCounts::RangeOf(Key key,
                                      const std::function<void(const Record&, const Addend&, Range*)>& add) const {
  Range range{Base(key), Base(key)};
  if (const auto it = by_key_.find(key); it != by_key_.end())
    for (const Addend& addend : it->second) add(records_[addend.record], addend, &range);
  if (scenario_.life.on) range.least = 0;
  if (scenario_.counts_row_codec != ValueCodec::kFp32) range.most = range.most * 1.5 + 1;
  return range;
}

std::string PushCounts::CheckPulled(const Pulled& pull, Key key, float value, double tolerance) const {
  const ConsistencySpec& spec = scenario_.counts;
  const std::uint64_t bound = pull.settled ? 0 : StalenessBound(spec);
  const bool bounded = spec.mode != ConsistencyMode::kAsp || pull.settled;
  const WorkerCacheSpec& cache = scenario_.counts_cache;
  const bool sees_own = cache.own_pushes == OwnPushes::kSeen || (cache.bytes == 0 && cache.push_every == 1);
  Range range = RangeOf(key, [&](const Record& r, const Addend& addend, Range* of) {
    const bool old = bounded && r.clock.value + bound < pull.clock.value;
    if (spec.apply == ApplyMode::kAggregated)
      return of->Add(Part(key, addend), old, pull.late || spec.mode != ConsistencyMode::kBsp);
    const bool dead = cohorts_->IsGone(r.incarnation) || !Counts(r);
    const bool own = sees_own && r.incarnation == pull.incarnation && addend.record < pull.mark;
    of->Add(addend.count, own || (old && (!dead || (r.acked && Counts(r)))), true);
  });
  if (lives_ && spec.mode == ConsistencyMode::kBsp && !pull.late)
    range.Set(lives_->ValueAt(key, PartsOf(key), pull.clock));
  if (range.Has(value, kTolerance + tolerance)) return {};
  return fmt::format("pull by incarnation {} at clock {}: key {:x} is {}, must be {} to {}", pull.incarnation.value,
                     pull.clock.value, key, value, range.least, range.most);
}

std::string PushCounts::CheckFinal(Key key, float value, Clock minimum) const {
  Range range = RangeOf(key, [&](const Record& r, const Addend& addend, Range* of) {
    if (scenario_.counts.apply == ApplyMode::kAggregated) return of->Add(Part(key, addend), true, true);
    of->Add(addend.count, r.acked, true);
  });
  if (lives_) range.Set(lives_->ValueAt(key, PartsOf(key), minimum));
  if (range.Has(value, kTolerance)) return {};
  return fmt::format("at the end key {:x} is {}, must be {} to {}", key, value, range.least, range.most);
}

std::string PushCounts::CheckCut(Clock cut, Key key, float value) const {
  const bool aggregated = scenario_.counts.apply == ApplyMode::kAggregated;
  Range range = RangeOf(key, [&](const Record& r, const Addend& addend, Range* of) {
    // Pushes of a dead worker after its end may be included if they were applied immediately.
    of->Add(aggregated ? Part(key, addend) : addend.count, r.clock < cut && Counts(r), !aggregated && !Counts(r));
  });
  if (lives_) range.Set(lives_->ValueAt(key, PartsOf(key), cut));
  if (range.Has(value, kTolerance)) return {};
  return fmt::format("the checkpoint at clock {} has {} for key {:x}, must be {} to {}", cut.value, value, key,
                     range.least, range.most);
}

// For an ended worker the verdict decides, for others the acknowledgement. A worker that is still being fenced at the
// end died after the cut, because the cut waits for verdicts.
bool PushCounts::IsKept(const Record& record) const {
  return cohorts_->HasEnded(record.incarnation) ? Counts(record) : record.acked;
}

std::string PushCounts::CheckStopped(Key key, float value) const {
  const Range range = RangeOf(key, [&](const Record& r, const Addend& addend, Range* of) {
    // Pushes of a dead worker after its end may be included.
    of->Add(addend.count, IsKept(r), cohorts_->HasEnded(r.incarnation));
  });
  if (range.Has(value, kTolerance)) return {};
  return fmt::format("the checkpoint of a stop has {} for key {:x}, must be {} to {}", value, key, range.least,
                     range.most);
}

std::string PushCounts::CheckCopied(Key key, float value, const std::function<bool(const DataRows&)>& trained) const {
  const Range range = RangeOf(key, [&](const Record& r, const Addend& addend, Range* of) {
    of->Add(addend.count, Counts(r) && trained(r.rows), true);
  });
  if (range.Has(value, kTolerance)) return {};
  return fmt::format("a checkpoint has {} for key {:x}, must be {} to {}", value, key, range.least, range.most);
}

std::vector<std::uint32_t> PushCounts::TimesTrained(std::uint32_t epoch, std::optional<Clock> before) const {
  return Times(epoch, [&](const Record& r) { return (!before || r.clock < *before) && Counts(r); });
}

std::vector<std::uint32_t> PushCounts::TimesKept(std::uint32_t epoch) const {
  return Times(epoch, [this](const Record& r) { return IsKept(r); });
}

std::vector<std::uint32_t> PushCounts::Times(std::uint32_t epoch,
                                             const std::function<bool(const Record&)>& included) const {
  std::vector<std::uint32_t> times(scenario_.train_rows, 0);
  for (const Record& r : records_)
    if (r.rows.epoch == epoch && included(r))
      for (std::uint64_t row = r.rows.first; row < r.rows.first + r.rows.count; ++row) ++times[row];
  return times;
}

}  // namespace tarn::sim

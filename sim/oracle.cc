#include "sim/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/hash.h"
#include "core/position.h"

namespace tarn::sim {
namespace {

constexpr double kTolerance = 1e-3;

// Maximum rounding error of a value in the codec.
double Rounding(ValueCodec codec, double value) {
  switch (codec) {
    case ValueCodec::kFp32: return 0;
    case ValueCodec::kBf16: return std::abs(value) / 128;
    case ValueCodec::kFp16: return std::abs(value) / 1024;
    case ValueCodec::kTopK: return 0;
    // The values of a row are equal: each is the maximum and the mean.
    case ValueCodec::kInt8:
    case ValueCodec::kTernary:
    case ValueCodec::kSign:
    case ValueCodec::kOneBit: return std::abs(value) * 1e-6;
    case ValueCodec::kLowRank:
    case ValueCodec::kQsgd: return std::abs(value);  // no oracle table has it
  }
  return 0;
}

// Widens the bounds of a count for lives and 16-bit rows: pushes may have been dropped, and stochastic rounding adds
// errors.
void Widen(const Scenario& scenario, double* least, double* most) {
  if (scenario.life.on) *least = 0;
  if (scenario.counts_row_codec != ValueCodec::kFp32) *most = *most * 1.5 + 1;
}

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

Oracle::Oracle(const Scenario& scenario) : scenario_(scenario) {
  if (scenario.counts.apply == ApplyMode::kAggregated && scenario.counts_row_codec == ValueCodec::kFp32 &&
      LifeModel::Applies(scenario.life))
    lives_.emplace(scenario.life, TableSalt(scenario.job.job.seed, "counts"));
}

void Oracle::Fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void Oracle::ResumeFrom(const Manifest& manifest, std::map<Key, float> values) {
  for (auto it = values.begin(); it != values.end();) {
    const bool changed = RowChanges::IsChanged(it->first);
    if (changed) changes_.SetBase(it->first, it->second);
    it = changed ? values.erase(it) : std::next(it);
  }
  base_ = std::move(values);
  lives_.reset();  // the values do not determine the ages of rows
  first_epoch_ = manifest.data.epoch;
  trained_before_.assign(scenario_.train_rows, false);
  for (std::size_t split = 0; split < manifest.data.trained.size(); ++split)
    for (std::uint64_t i = 0; i < manifest.data.trained[split]; ++i)
      trained_before_.at(split * manifest.data.split_rows + i) = true;
}

double Oracle::Base(Key key) const {
  const auto it = base_.find(key);
  return it == base_.end() ? 0 : double(it->second);
}

std::size_t Oracle::OnPushIssued(Incarnation incarnation, Clock clock, std::uint32_t epoch, std::uint64_t first_row,
                                 std::uint64_t rows, const std::map<Key, float>* sent) {
  records_.push_back({incarnation, clock, epoch, first_row, rows});
  if (sent != nullptr) {
    for (const auto& [key, count] : *sent) by_key_[key].push_back({records_.size() - 1, count});
    return records_.size() - 1;
  }
  std::map<Key, float> counts;
  std::vector<Key> keys;
  for (std::uint64_t r = first_row; r < first_row + rows; ++r) {
    KeysOfRow(scenario_, r, &keys);
    for (Key key : keys) ++counts[key];
  }
  for (auto [key, count] : counts) by_key_[key].push_back({records_.size() - 1, count});
  return records_.size() - 1;
}

void Oracle::OnPushAcked(std::size_t record, std::size_t sections) {
  records_[record].acked = true;
  acked_push_ids_ += sections;
}

double Oracle::Part(Key key, const Contribution& contribution) const {
  const Record& record = records_[contribution.record];
  if (scenario_.counts.backup_workers == 0)
    return Counts(record) ? contribution.count / cohorts_.SizeAt(record.clock) : 0;
  const auto table = std::ranges::find(view_.tables, "counts", &TableSpec::name);
  if (table == view_.tables.end()) return 0;
  const auto closings = closings_.find(table->id);
  if (closings == closings_.end()) return 0;
  const Positioner position(*table, TableSalt(scenario_.job.job.seed, table->name));
  return contribution.count * closings->second.Share(PartitionOf(position(key), view_.routes.partition_bits),
                                                     record.clock, record.incarnation);
}

// The sums of all counting pushes to a key, by clock.
std::vector<ClockPart> Oracle::PartsOf(Key key) const {
  std::map<Clock, double> sums;
  if (const auto it = by_key_.find(key); it != by_key_.end())
    for (const Contribution& c : it->second)
      if (const double part = Part(key, c); part != 0) sums[records_[c.record].clock] += part;
  std::vector<ClockPart> parts;
  parts.reserve(sums.size());
  for (const auto& [clock, value] : sums) parts.push_back({clock, value});
  return parts;
}

void Oracle::Narrow(Key key, Clock minimum, double* least, double* most) const {
  if (lives_) *least = *most = lives_->ValueAt(key, PartsOf(key), minimum);
}

void Oracle::CheckStaleness(const ConsistencySpec& spec, std::uint64_t staleness) {
  if (spec.mode == ConsistencyMode::kAsp) return;
  const std::uint64_t bound = StalenessBound(spec);
  if (staleness > bound) Fail(fmt::format("a pull was {} clocks behind, at most {} are allowed", staleness, bound));
}

void Oracle::CheckValue(Incarnation incarnation, Clock clock, Key key, float value, std::size_t mark, bool settled,
                        bool late) {
  auto it = by_key_.find(key);
  const std::vector<Contribution> none;
  const ConsistencySpec& spec = scenario_.counts;
  const bool aggregated = spec.apply == ApplyMode::kAggregated;
  const std::uint64_t bound = settled ? 0 : StalenessBound(spec);
  const bool bounded = spec.mode != ConsistencyMode::kAsp || settled;
  const WorkerCacheSpec& cache = scenario_.counts_cache;
  const bool sees_own = cache.own_pushes == OwnPushes::kSeen || (cache.bytes == 0 && cache.push_every == 1);
  double least = Base(key), most = least;
  for (const Contribution& c : it == by_key_.end() ? none : it->second) {
    const Record& r = records_[c.record];
    const bool old = bounded && r.clock.value + bound < clock.value;
    if (aggregated) {
      const double part = Part(key, c);
      if (old) least += part;
      if (old || late || spec.mode != ConsistencyMode::kBsp) most += part;
      continue;
    }
    const bool dead = cohorts_.IsGone(r.incarnation) || !Counts(r);
    const bool own = sees_own && r.incarnation == incarnation && c.record < mark;
    if (own || (old && (!dead || (r.acked && Counts(r))))) least += c.count;
    most += c.count;
  }
  const double tolerance = kTolerance + Rounding(scenario_.counts_pull_codec, value);
  Widen(scenario_, &least, &most);
  if (spec.mode == ConsistencyMode::kBsp && !late) Narrow(key, clock, &least, &most);
  if (value < least - tolerance || value > most + tolerance)
    Fail(fmt::format("pull by incarnation {} at clock {}: key {:x} is {}, must be {} to {}", incarnation.value,
                     clock.value, key, value, least, most));
}

void Oracle::CheckChanged(Incarnation incarnation, Clock clock, Key key, float value, std::size_t mark) {
  Check(changes_.CheckPulled(incarnation, clock, key, value, mark, Rounding(scenario_.counts_pull_codec, value)));
}

void Oracle::CheckFinalValue(Key key, float value, Clock minimum) {
  if (RowChanges::IsChanged(key)) return Check(changes_.CheckFinal(key, value));
  auto it = by_key_.find(key);
  const std::vector<Contribution> none;
  const bool aggregated = scenario_.counts.apply == ApplyMode::kAggregated;
  double least = Base(key), most = least;
  for (const Contribution& c : it == by_key_.end() ? none : it->second) {
    const Record& r = records_[c.record];
    if (aggregated) {
      const double part = Part(key, c);
      least += part;
      most += part;
    } else {
      if (r.acked) least += c.count;
      most += c.count;
    }
  }
  Widen(scenario_, &least, &most);
  Narrow(key, minimum, &least, &most);
  if (value < least - kTolerance || value > most + kTolerance)
    Fail(fmt::format("at the end key {:x} is {}, must be {} to {}", key, value, least, most));
}

void Oracle::CheckCutValue(Clock cut, Key key, float value) {
  if (RowChanges::IsChanged(key)) return Check(changes_.CheckCut(cut, key, value));
  const auto it = by_key_.find(key);
  const std::vector<Contribution> none;
  const bool aggregated = scenario_.counts.apply == ApplyMode::kAggregated;
  double least = Base(key), most = least;
  for (const Contribution& c : it == by_key_.end() ? none : it->second) {
    const Record& r = records_[c.record];
    const double part = aggregated ? Part(key, c) : c.count;
    const bool inside = r.clock < cut && Counts(r);
    if (inside) least += part;
    // Pushes of a dead worker after its end may be included if they were applied immediately.
    if (inside || (!aggregated && !Counts(r))) most += part;
  }
  Widen(scenario_, &least, &most);
  Narrow(key, cut, &least, &most);
  if (value < least - kTolerance || value > most + kTolerance)
    Fail(fmt::format("the checkpoint at clock {} has {} for key {:x}, must be {} to {}", cut.value, value, key, least,
                     most));
}

// For an ended worker the verdict decides, for others the acknowledgement. A worker that is still being fenced at the
// end died after the cut, because the cut waits for verdicts.
bool Oracle::IsKept(const Record& record) const {
  return cohorts_.HasEnded(record.incarnation) ? Counts(record) : record.acked;
}

void Oracle::CheckStopped(const Manifest& manifest, const std::map<Key, float>& values) {
  std::vector<std::uint32_t> kept(scenario_.train_rows, 0);
  for (const Record& r : records_)
    if (r.epoch == manifest.data.epoch && IsKept(r))
      for (std::uint64_t row = r.first_row; row < r.first_row + r.rows; ++row) ++kept[row];
  for (std::size_t split = 0; split < manifest.data.trained.size(); ++split)
    for (std::uint64_t i = 0; i < manifest.data.split_rows; ++i) {
      const std::uint64_t row = split * manifest.data.split_rows + i;
      const std::uint32_t covered = i < manifest.data.trained[split] ? 1 : 0;
      if (row < kept.size() && kept[row] != covered)
        return Fail(fmt::format("stopped in epoch {}: row {} was trained {} times, and the checkpoint counts {}",
                                manifest.data.epoch, row, kept[row], covered));
    }
  const auto value_of = [&](Key key) {
    const auto found = values.find(key);
    return found == values.end() ? 0 : found->second;
  };
  for (const Key key : changes_.Keys()) Check(changes_.CheckStopped(key, value_of(key)));
  for (const Key key : PushedKeys()) {
    double least = Base(key), most = least;
    if (const auto it = by_key_.find(key); it != by_key_.end())
      for (const Contribution& c : it->second) {
        const Record& r = records_[c.record];
        if (IsKept(r)) least += c.count;
        if (IsKept(r) || cohorts_.HasEnded(r.incarnation))
          most += c.count;  // pushes of a dead worker after its end may be included
      }
    Widen(scenario_, &least, &most);
    const auto value = double{value_of(key)};
    if (value < least - kTolerance || value > most + kTolerance)
      return Fail(
          fmt::format("the checkpoint of a stop has {} for key {:x}, must be {} to {}", value, key, least, most));
  }
}

void Oracle::CheckData() {
  for (std::uint32_t epoch = first_epoch_; epoch < scenario_.job.train.epochs; ++epoch) {
    std::vector<std::uint32_t> trained(scenario_.train_rows, 0);
    for (const Record& r : records_) {
      if (r.epoch != epoch || !Counts(r)) continue;
      for (std::uint64_t row = r.first_row; row < r.first_row + r.rows; ++row) ++trained[row];
    }
    for (std::uint64_t row = 0; row < trained.size(); ++row) {
      const bool before = epoch == first_epoch_ && row < trained_before_.size() && trained_before_[row];
      if (trained[row] != (before ? 0u : 1u))
        return Fail(fmt::format("epoch {}: row {} was trained {} times{}", epoch, row, trained[row],
                                before ? ", and before the checkpoint" : ""));
    }
  }
}

std::vector<Key> Oracle::Keys() const {
  std::vector<Key> keys = PushedKeys();
  const std::vector<Key> changed = changes_.Keys();
  keys.insert(keys.end(), changed.begin(), changed.end());
  return keys;
}

std::vector<Key> Oracle::PushedKeys() const {
  std::vector<Key> keys;
  keys.reserve(by_key_.size() + base_.size());
  for (const auto& [key, contributions] : by_key_) keys.push_back(key);
  for (const auto& [key, value] : base_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace tarn::sim

#include "sim/row_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/hash.h"

namespace tarn::sim {
namespace {

constexpr double kTolerance = 1e-3;
constexpr std::uint64_t kKeysPerOwner = 6;
// Values are whole numbers that bf16 and fp16 represent exactly.
constexpr std::uint64_t kValues = 200;

}  // namespace

RowChanges::RowChanges(const Scenario& scenario, const Cohorts* cohorts) : scenario_(scenario), cohorts_(cohorts) {}

std::vector<Key> RowChanges::KeysOf(WorkerRank rank, Incarnation incarnation) const {
  const std::uint64_t owner = aggregated() ? rank.value : 1'000 + incarnation.value;
  std::vector<Key> keys;
  keys.reserve(kKeysPerOwner);
  for (std::uint64_t i = 0; i < kKeysPerOwner; ++i) keys.push_back(kPrefix << kKeyBits | owner << 4 | i);
  return keys;
}

std::vector<RowChanges::Action> RowChanges::ActionsAt(WorkerRank rank, Incarnation incarnation, Clock clock) const {
  if (!scenario_.changes) return {};
  const std::vector<Key> keys = KeysOf(rank, incarnation);
  SplitMix rng(HashCombine(HashCombine(scenario_.seed ^ 0x6368616e6765, keys.front()), clock.value));
  std::vector<Action> actions;
  if (!rng.Chance(0.5)) return actions;
  for (std::uint64_t n = 1 + rng.Below(4); n > 0; --n) {
    Action action{.key = keys[rng.Below(keys.size())], .value = static_cast<float>(1 + rng.Below(kValues))};
    const double kind = rng.Unit();
    if (kind < 0.25) action.action = PushAction::kDelete;
    if (kind > 0.75 && scenario_.changes_step) action.action = PushAction::kStep;
    actions.push_back(action);
  }
  return actions;
}

std::vector<Key> RowChanges::KeysToRead(WorkerRank rank, Incarnation incarnation, Clock clock) const {
  if (!scenario_.changes) return {};
  std::vector<Key> keys = KeysOf(rank, incarnation);
  if (by_key_.empty()) return keys;
  SplitMix rng(HashCombine(scenario_.seed ^ 0x72656164, HashCombine(keys.front(), clock.value)));
  for (int i = 0; i < 2; ++i) {
    const Key other = std::next(by_key_.begin(), std::ptrdiff_t(rng.Below(by_key_.size())))->first;
    if (std::ranges::find(keys, other) == keys.end()) keys.push_back(other);
  }
  return keys;
}

std::size_t RowChanges::OnIssued(Incarnation incarnation, Clock clock, const Action& action) {
  by_key_[action.key].push_back(records_.size());
  records_.push_back({incarnation, clock, action});
  return records_.size() - 1;
}

std::vector<Key> RowChanges::Keys() const {
  std::vector<Key> keys;
  keys.reserve(by_key_.size());
  for (const auto& [key, numbers] : by_key_) keys.push_back(key);
  for (const auto& [key, value] : base_)
    if (!by_key_.contains(key)) keys.push_back(key);
  return keys;
}

std::vector<const RowChanges::Record*> RowChanges::On(Key key) const {
  std::vector<const Record*> records;
  if (const auto numbers = by_key_.find(key); numbers != by_key_.end())
    for (const std::size_t number : numbers->second) records.push_back(&records_[number]);
  return records;
}

double RowChanges::Base(Key key) const {
  const auto base = base_.find(key);
  return base == base_.end() ? 0 : double{base->second};
}

double RowChanges::ClosedValue(Key key, Clock end) const {
  std::map<Clock, std::vector<const Record*>> clocks;
  for (const Record* record : On(key))
    if (record->clock < end && Counts(*record)) clocks[record->clock].push_back(record);
  double value = Base(key);
  for (auto& [clock, records] : clocks) {
    std::ranges::stable_sort(records, {}, &Record::incarnation);
    for (const Record* record : records)
      if (record->action.action == PushAction::kStep) value += 1 / cohorts_->SizeAt(clock);
    for (const Record* record : records)
      if (record->action.action != PushAction::kStep)
        value = record->action.action == PushAction::kAssign ? double{record->action.value} : 0;
  }
  return value;
}

std::vector<double> RowChanges::ValuesAfter(Key key, std::size_t least, std::size_t most) const {
  std::vector<double> values;
  double value = Base(key);
  const std::vector<const Record*> records = On(key);
  for (std::size_t n = 0;; ++n) {
    if (n >= least && n <= most) values.push_back(value);
    if (n == records.size()) return values;
    switch (const Action& action = records[n]->action; action.action) {
      case PushAction::kAssign: value = double{action.value}; break;
      case PushAction::kDelete: value = 0; break;
      case PushAction::kStep: value += 1; break;
    }
  }
}

// A row with a life may have expired.
std::string RowChanges::Check(Key key, float value, const std::vector<double>& allowed, double tolerance,
                              const std::string& where) const {
  const auto fits = [&](double expected) { return std::abs(double{value} - expected) <= kTolerance + tolerance; };
  if (std::ranges::any_of(allowed, fits) || (scenario_.life.on && fits(0))) return {};
  return fmt::format("{}: the assigned row of key {:x} is {}, must be {}", where, key, value,
                     fmt::join(allowed, " or "));
}

std::string RowChanges::CheckPulled(Incarnation incarnation, Clock use, Key key, float value, std::size_t mark,
                                    double tolerance) const {
  const ConsistencySpec& spec = scenario_.counts;
  const std::uint64_t bound = StalenessBound(spec);
  const std::string where = fmt::format("pull by incarnation {} at clock {}", incarnation.value, use.value);
  if (aggregated()) {
    std::vector<double> allowed;
    for (std::uint64_t end = use.value - std::min(use.value, bound); end <= use.value; ++end)
      allowed.push_back(ClosedValue(key, Clock(end)));
    return Check(key, value, allowed, tolerance, where);
  }
  const WorkerCacheSpec& cache = scenario_.counts_cache;
  const bool sees_own = cache.own_pushes == OwnPushes::kSeen || (cache.bytes == 0 && cache.push_every == 1);
  const std::vector<const Record*> records = On(key);
  std::size_t least = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = *records[i];
    const bool finished = record.clock.value + bound < use.value;
    const bool old = spec.mode != ConsistencyMode::kAsp && !may_be_late() && finished;
    const bool dead = cohorts_->IsGone(record.incarnation) || !Counts(record);
    const bool own =
        record.incarnation == incarnation && (may_be_late() ? finished : sees_own && &record < records_.data() + mark);
    if (own || (old && (!dead || (record.acked && Counts(record))))) least = i + 1;
  }
  return Check(key, value, ValuesAfter(key, least, records.size()), tolerance, where);
}

std::string RowChanges::CheckFinal(Key key, float value) const {
  if (aggregated())
    return Check(key, value, {ClosedValue(key, Clock(std::numeric_limits<std::uint64_t>::max()))}, 0, "at the end");
  const std::vector<const Record*> records = On(key);
  std::size_t least = 0;
  for (std::size_t i = 0; i < records.size(); ++i)
    if (records[i]->acked && (!may_be_late() || Counts(*records[i]))) least = i + 1;
  return Check(key, value, ValuesAfter(key, least, records.size()), 0, "at the end");
}

// Actions of a dead worker after its end may be included if they were performed immediately.
std::string RowChanges::CheckCut(Clock cut, Key key, float value) const {
  const std::string where = fmt::format("the checkpoint at clock {}", cut.value);
  if (aggregated()) return Check(key, value, {ClosedValue(key, cut)}, 0, where);
  const std::vector<const Record*> records = On(key);
  std::size_t least = 0, most = records.size();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i]->clock < cut && Counts(*records[i])) least = i + 1;
    if (records[i]->clock >= cut && Counts(*records[i])) most = std::min(most, i);
  }
  return Check(key, value, ValuesAfter(key, least, std::max(least, most)), 0, where);
}

// Like PushCounts::IsKept.
bool RowChanges::IsKept(const Record& record) const {
  return cohorts_->HasEnded(record.incarnation) ? Counts(record) : record.acked;
}

std::string RowChanges::CheckStopped(Key key, float value) const {
  const std::vector<const Record*> records = On(key);
  std::size_t least = 0, most = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (IsKept(*records[i])) least = i + 1;
    if (IsKept(*records[i]) || cohorts_->HasEnded(records[i]->incarnation)) most = i + 1;
  }
  return Check(key, value, ValuesAfter(key, least, most), 0, "the checkpoint of a stop");
}

}  // namespace tarn::sim

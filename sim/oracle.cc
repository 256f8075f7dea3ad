#include "sim/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace tarn::sim {
namespace {

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
    case ValueCodec::kQsgd: return std::abs(value);  // the oracle table uses neither
  }
  return 0;
}

// Whether this row is trained according to the position of training.
bool IsTrained(const DataState& data, std::uint64_t row) {
  if (data.trained.empty()) return false;
  const std::uint64_t split = row / data.split_rows;
  return split < data.trained.size() && row % data.split_rows < data.trained[split];
}

}  // namespace

void Oracle::Fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void Oracle::ResumeFrom(const Manifest& manifest, std::map<Key, float> values) {
  for (auto it = values.begin(); it != values.end();) {
    const bool changed = RowChanges::IsChanged(it->first);
    if (changed) changes_.SetBase(it->first, it->second);
    it = changed ? values.erase(it) : std::next(it);
  }
  counts_.ResumeFrom(std::move(values));
  resumed_ = manifest.data;
}

void Oracle::CheckStaleness(const ConsistencySpec& spec, std::uint64_t staleness) {
  if (spec.mode == ConsistencyMode::kAsp) return;
  const std::uint64_t bound = StalenessBound(spec);
  if (staleness > bound) Fail(fmt::format("a pull was {} clocks behind, at most {} are allowed", staleness, bound));
}

void Oracle::CheckCount(const PushCounts::Pulled& pull, Key key, float value) {
  Check(counts_.CheckPulled(pull, key, value, Rounding(scenario_.counts_pull_codec, value)));
}

void Oracle::CheckChanged(Incarnation incarnation, Clock clock, Key key, float value, std::size_t mark) {
  Check(changes_.CheckPulled(incarnation, clock, key, value, mark, Rounding(scenario_.counts_pull_codec, value)));
}

void Oracle::CheckFinalValue(Key key, float value, Clock minimum) {
  Check(RowChanges::IsChanged(key) ? changes_.CheckFinal(key, value) : counts_.CheckFinal(key, value, minimum));
}

void Oracle::CheckCutValue(Clock cut, Key key, float value) {
  Check(RowChanges::IsChanged(key) ? changes_.CheckCut(cut, key, value) : counts_.CheckCut(cut, key, value));
}

void Oracle::CheckCutData(const Manifest& manifest) {
  const DataState& data = manifest.data;
  for (std::uint32_t epoch = resumed_.epoch; epoch < scenario_.job.train.epochs; ++epoch) {
    const std::vector<std::uint32_t> times = counts_.TimesTrained(epoch, manifest.resume_clock);
    for (std::uint64_t row = 0; row < times.size(); ++row) {
      const std::uint32_t before = epoch == resumed_.epoch && IsTrained(resumed_, row) ? 1 : 0;
      const bool covered = epoch < data.epoch || (epoch == data.epoch && IsTrained(data, row));
      if (times[row] + before != (covered ? 1u : 0u))
        return Fail(fmt::format("the checkpoint at clock {} has {} pushes of row {} of epoch {}, and counts {}",
                                manifest.resume_clock.value, times[row] + before, row, epoch, covered ? 1 : 0));
    }
  }
}

void Oracle::CheckCopiedValue(const Manifest& manifest, Key key, float value) {
  if (RowChanges::IsChanged(key)) return;
  const DataState& data = manifest.data;
  Check(counts_.CheckCopied(key, value, [&](const PushCounts::DataRows& rows) {
    bool trained = rows.epoch <= data.epoch;
    for (std::uint64_t row = rows.first; trained && row < rows.first + rows.count; ++row)
      trained = rows.epoch < data.epoch || IsTrained(data, row);
    return trained;
  }));
}

void Oracle::CheckLastCut(std::optional<Clock> cut) {
  for (const auto& [worker, clock] : accepted_) {
    // A verdict voids the pushes of clocks from its end on.
    const bool lost = !cut || (clock >= *cut && (cohorts_.Has(worker, *cut) || cohorts_.Has(worker, clock)));
    if (lost)
      Fail(fmt::format("incarnation {}: a push of clock {} was accepted, and the run ended with {}", worker.value,
                       clock.value, cut ? fmt::format("a checkpoint of clock {}", cut->value) : "no checkpoint"));
  }
}

void Oracle::CheckStopped(const Manifest& manifest, const std::map<Key, float>& values) {
  const std::vector<std::uint32_t> kept = counts_.TimesKept(manifest.data.epoch);
  const std::uint64_t rows =
      std::min<std::uint64_t>(kept.size(), manifest.data.trained.size() * manifest.data.split_rows);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint32_t covered = IsTrained(manifest.data, row) ? 1 : 0;
    if (kept[row] != covered)
      return Fail(fmt::format("stopped in epoch {}: row {} was trained {} times, and the checkpoint counts {}",
                              manifest.data.epoch, row, kept[row], covered));
  }
  const auto value_of = [&](Key key) {
    const auto found = values.find(key);
    return found == values.end() ? 0 : found->second;
  };
  for (const Key key : changes_.Keys()) Check(changes_.CheckStopped(key, value_of(key)));
  for (const Key key : counts_.Keys()) Check(counts_.CheckStopped(key, value_of(key)));
}

void Oracle::CheckData() {
  for (std::uint32_t epoch = resumed_.epoch; epoch < scenario_.job.train.epochs; ++epoch) {
    const std::vector<std::uint32_t> trained = counts_.TimesTrained(epoch);
    for (std::uint64_t row = 0; row < trained.size(); ++row) {
      const bool before = epoch == resumed_.epoch && IsTrained(resumed_, row);
      if (trained[row] != (before ? 0u : 1u))
        return Fail(fmt::format("epoch {}: row {} was trained {} times{}", epoch, row, trained[row],
                                before ? ", and before the checkpoint" : ""));
    }
  }
}

std::vector<Key> Oracle::Keys() const {
  std::vector<Key> keys = counts_.Keys();
  const std::vector<Key> changed = changes_.Keys();
  keys.insert(keys.end(), changed.begin(), changed.end());
  return keys;
}

}  // namespace tarn::sim

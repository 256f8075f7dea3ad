#include "core/quality.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace tarn {
namespace {

constexpr double kLogitMax = 16;

std::uint32_t BucketOf(float logit) {
  constexpr double kPerUnit = Quality::kBuckets / (2 * kLogitMax);
  if (std::isnan(logit)) return Quality::kBuckets / 2;
  const double place = (std::clamp(double{logit}, -kLogitMax, kLogitMax) + kLogitMax) * kPerUnit;
  return std::min(static_cast<std::uint32_t>(place), Quality::kBuckets - 1);
}

void AddToCounts(float logit, bool positive, Quality* sums) {
  ++sums->rows;
  sums->positives += positive ? 1 : 0;
  sums->correct += (logit > 0) == positive ? 1 : 0;
}

// A bucket saturates: if it wrapped around, its rows would be missing from the AUC.
std::uint32_t AddUpToMax(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::uint64_t{a} + b, UINT32_MAX));
}

void AddToBucket(bool positive, Quality::Bucket* bucket) {
  std::uint32_t& count = positive ? bucket->positives : bucket->negatives;
  count = AddUpToMax(count, 1);
}

}  // namespace

void Quality::AddBinary(float logit, bool positive) {
  AddToCounts(logit, positive, this);
  AddToBucket(positive, &At(BucketOf(logit)));
}

Quality::Bucket& Quality::At(std::uint32_t index) {
  auto place = std::lower_bound(buckets.begin(), buckets.end(), index,
                                [](const auto& item, std::uint32_t wanted) { return item.first < wanted; });
  if (place == buckets.end() || place->first != index) place = buckets.insert(place, {index, {}});
  return place->second;
}

void Quality::AddClass(double loss, bool was_correct) {
  ++rows;
  correct += was_correct ? 1 : 0;
  loss_sum += loss;
}

void Quality::Merge(const Quality& other) {
  rows += other.rows;
  positives += other.positives;
  correct += other.correct;
  loss_sum += other.loss_sum;
  std::vector<std::pair<std::uint32_t, Bucket>> both;
  both.reserve(buckets.size() + other.buckets.size());
  auto mine = buckets.begin();
  for (const auto& [index, from] : other.buckets) {
    while (mine != buckets.end() && mine->first < index) both.push_back(*mine++);
    Bucket sum = from;
    if (mine != buckets.end() && mine->first == index) {
      sum.negatives = AddUpToMax(sum.negatives, mine->second.negatives);
      sum.positives = AddUpToMax(sum.positives, mine->second.positives);
      ++mine;
    }
    both.emplace_back(index, sum);
  }
  both.insert(both.end(), mine, buckets.end());
  buckets = std::move(both);
}

double Quality::Auc() const {
  double pairs_won = 0, negatives_below = 0, positives_all = 0;
  for (const auto& [index, bucket] : buckets) {
    pairs_won += bucket.positives * (negatives_below + 0.5 * bucket.negatives);
    negatives_below += bucket.negatives;
    positives_all += bucket.positives;
  }
  const double pairs = negatives_below * positives_all;
  return pairs > 0 ? pairs_won / pairs : 0.5;
}

double Quality::LogLoss() const { return rows > 0 ? loss_sum / static_cast<double>(rows) : 0; }

double Quality::Accuracy() const { return rows > 0 ? static_cast<double>(correct) / static_cast<double>(rows) : 0; }

double Quality::NormalizedEntropy() const {
  if (positives == 0 || positives >= rows) return 1;
  const double p = static_cast<double>(positives) / static_cast<double>(rows);
  return LogLoss() / -(p * std::log(p) + (1 - p) * std::log1p(-p));
}

void QualityTally::AddBinary(float logit, bool positive) {
  AddToCounts(logit, positive, &sums_);
  const std::uint32_t index = BucketOf(logit);
  touched_[index / 64] |= std::uint64_t{1} << (index % 64);
  AddToBucket(positive, &grid_[index]);
}

Quality QualityTally::Take() {
  Quality taken = std::exchange(sums_, {});
  std::size_t count = 0;
  for (std::uint64_t word : touched_) count += static_cast<std::size_t>(std::popcount(word));
  taken.buckets.reserve(count);
  for (std::uint32_t i = 0; i < touched_.size(); ++i)
    for (std::uint64_t word = std::exchange(touched_[i], 0); word != 0; word &= word - 1) {
      const std::uint32_t index = i * 64 + static_cast<std::uint32_t>(std::countr_zero(word));
      taken.buckets.emplace_back(index, std::exchange(grid_[index], {}));
    }
  return taken;
}

}  // namespace tarn

#include "core/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/json.h"

namespace tarn {

void Histogram::Add(std::uint64_t value, std::uint64_t times) {
  if (times == 0) return;
  if (value < kBuckets) {
    if (value >= counts_.size()) counts_.resize(value + 1);
    counts_[value] += times;
  } else {
    overflow_ += times;
  }
  count_ += times;
  sum_ += value * times;
  max_ = std::max(max_, value);
}

void Histogram::Merge(const Histogram& other) {
  if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
  for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  overflow_ += other.overflow_;
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

std::uint64_t Histogram::Percentile(double share) const {
  const double wanted = std::max(1.0, std::ceil(std::clamp(share, 0.0, 1.0) * double(count_)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (double(seen) >= wanted) return i;
  }
  return max_;
}

std::vector<std::uint64_t> Histogram::ToWords() const {
  std::vector<std::uint64_t> words = {sum_, max_, overflow_};
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    words.push_back(i);
    words.push_back(counts_[i]);
  }
  return words;
}

Expected<Histogram> Histogram::FromWords(std::span<const std::uint64_t> words) {
  constexpr std::uint64_t kCountMax = std::numeric_limits<std::uint64_t>::max() >> 1;
  if (words.size() < 3 || words.size() % 2 == 0 || words.size() > 3 + 2 * kBuckets)
    return Fail(ErrorCode::kMalformed, "histogram: expected an odd number of words from 3 to 2051");
  Histogram out;
  for (std::size_t i = 3; i < words.size(); i += 2) {
    const std::uint64_t value = words[i], times = words[i + 1];
    if (value >= kBuckets || value < out.counts_.size() || times == 0 || times > kCountMax - out.count_)
      return Fail(ErrorCode::kMalformed, "histogram: values must rise below 1024, counts must not be 0");
    out.Add(value, times);
  }
  const bool max_fits = words[2] == 0 ? words[1] == out.max_ : words[1] >= kBuckets;
  const bool sum_fits = words[2] == 0 ? words[0] == out.sum_ : words[0] >= out.sum_;
  if (!max_fits || !sum_fits || words[2] > kCountMax - out.count_)
    return Fail(ErrorCode::kMalformed, "histogram: sum, maximum and counts contradict each other");
  out.sum_ = words[0];
  out.max_ = words[1];
  out.overflow_ = words[2];
  out.count_ += words[2];
  return out;
}

void Histogram::WriteJson(JsonWriter& out) const {
  out.BeginObject();
  out.Member("count", count_);
  out.Member("mean", mean());
  out.Member("p50", Percentile(0.5));
  out.Member("p99", Percentile(0.99));
  out.Member("max", max_);
  out.Key("counts");
  out.BeginObject();
  for (std::size_t i = 0; i < counts_.size(); ++i)
    if (counts_[i] != 0) out.Member(std::to_string(i), counts_[i]);
  out.EndObject();
  out.Member("overflow", overflow_);
  out.EndObject();
}

}  // namespace tarn

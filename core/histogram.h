// A histogram of small non-negative integers, such as staleness in clocks: exact counts of 0..1023, one bucket for
// all above, exact sum and maximum. A plain value; not shared between threads without a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn {

class JsonWriter;

class Histogram {
 public:
  static constexpr std::size_t kBuckets = 1024;  // exact ones; bucket i counts the value i

  void Add(std::uint64_t value, std::uint64_t times = 1);
  void Merge(const Histogram& other);

  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t max() const { return max_; }            // 0 when empty
  std::uint64_t overflow() const { return overflow_; }  // values of kBuckets and above
  double mean() const { return count_ == 0 ? 0 : double(sum_) / double(count_); }
  std::uint64_t CountOf(std::size_t value) const { return value < counts_.size() ? counts_[value] : 0; }

  // The least value v such that at least `share` (0..1) of all values are <= v; max() if that lies in the overflow.
  // 0 when empty.
  std::uint64_t Percentile(double share) const;

  // The exact counts without zeros at the end: counts[i] values of i, size at most kBuckets.
  std::span<const std::uint64_t> counts() const { return counts_; }

  // Sparse form: {sum, max, overflow, then (value, count) with count > 0 in rising order of value}.
  std::vector<std::uint64_t> ToWords() const;
  // kMalformed if the words are not what ToWords can give.
  static Expected<Histogram> FromWords(std::span<const std::uint64_t> words);

  // {"count":..,"mean":..,"p50":..,"p99":..,"max":..,"counts":{"0":12,"3":1},"overflow":0}
  void WriteJson(JsonWriter& out) const;

  friend bool operator==(const Histogram&, const Histogram&) = default;

 private:
  std::vector<std::uint64_t> counts_;  // grows to the largest exact value seen
  std::uint64_t overflow_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace tarn

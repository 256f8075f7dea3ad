// Converts integers to categories, by a BinRule (core/job/job.h). The result is a value for a key (worker/data/keys.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/job/job.h"

namespace tarn::worker {

// Computes floor(ln(v)^2) for v > 2 from a table of the bins' lower bounds. So no logarithm is computed per value, and
// the bins are the same on every machine.
class LogBins {
 public:
  LogBins();

  // v must be above 2.
  std::uint32_t Bin(std::int64_t v) const {
    const auto u = static_cast<std::uint64_t>(v);
    const int zeros = __builtin_clzll(u);
    // The bin of the smallest number that shares u's leading bit and next four bits. The bin of u is this one or one of
    // the next few.
    std::uint32_t bin = first_[(63 - zeros) * 16 + (((u << zeros) >> 59) & 15)];
    while (u >= begin_[bin + 1]) ++bin;
    return bin;
  }

 private:
  std::vector<std::uint64_t> begin_;  // bin b is [begin_[b], begin_[b + 1]); the last entry is 2^64 - 1
  std::array<std::uint16_t, 63 * 16> first_{};
};

// The category of an integer under a rule other than kNone. kLogSquared: v if v <= 2, else its bin; kWidth:
// floor(v / width); kIdentity: v.
std::uint64_t BinnedValue(const BinRule& rule, const LogBins& bins, std::int64_t v);

// kInvalidArgument if a width is not positive and finite.
Status Validate(const BinRule& rule);

}  // namespace tarn::worker

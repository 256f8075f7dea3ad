// Integers as categories: the rules of core/job/job.h's BinRule, as values of worker/data/keys.h.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/job/job.h"

namespace tarn::worker {

// floor(ln(v)^2) for v > 2, from a table of where each bin begins: no logarithm per value, and the same bins on every
// machine.
class LogBins {
 public:
  LogBins();

  // v must be above 2.
  std::uint32_t Bin(std::int64_t v) const {
    const auto u = static_cast<std::uint64_t>(v);
    const int zeros = __builtin_clzll(u);
    // Where the values with this leading bit and the next four begin; a few bins at the most lie within.
    std::uint32_t bin = first_[(63 - zeros) * 16 + (((u << zeros) >> 59) & 15)];
    while (u >= begin_[bin + 1]) ++bin;
    return bin;
  }

 private:
  std::vector<std::uint64_t> begin_;  // bin b holds [begin_[b], begin_[b + 1]); closed by 2^64 - 1
  std::array<std::uint16_t, 63 * 16> first_{};
};

// The value of a present integer under a rule other than kNone. kLog2: v <= 2 is itself, above it is its bin; kWidth:
// floor(v / width); kIdentity: itself.
std::uint64_t BinnedValue(const BinRule& rule, const LogBins& bins, std::int64_t v);

// kInvalidArgument if a width is not positive and finite.
Status Validate(const BinRule& rule);

}  // namespace tarn::worker

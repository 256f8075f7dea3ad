#include "worker/data/bins.h"

#include <cmath>

#include <fmt/format.h>

#include "worker/data/keys.h"

namespace tarn::worker {

LogBins::LogBins() {
  // For b > 0, exp(sqrt(b)) is never within rounding error of an integer, so ceil gives the first integer of bin b.
  begin_.push_back(1);
  for (std::uint32_t b = 1;; ++b) {
    const double begin = std::ceil(std::exp(std::sqrt(static_cast<double>(b))));
    if (begin >= 0x1.0p63) break;
    begin_.push_back(static_cast<std::uint64_t>(begin));
  }
  begin_.push_back(~0ULL);
  std::uint16_t bin = 0;
  for (std::uint64_t exponent = 0; exponent < 63; ++exponent)
    for (std::uint64_t part = 0; part < 16; ++part) {
      const std::uint64_t low = (1ULL << exponent) + ((part << exponent) >> 4);
      while (low >= begin_[bin + 1]) ++bin;
      first_[exponent * 16 + part] = bin;
    }
}

std::uint64_t BinnedValue(const BinRule& rule, const LogBins& bins, std::int64_t v) {
  switch (rule.kind) {
    case BinRule::Kind::kLogSquared: return v <= 2 ? IntegerValue(v) : kBinBase + bins.Bin(v);
    case BinRule::Kind::kWidth: {
      const double quotient = std::floor(static_cast<double>(v) / rule.width);
      return IntegerValue(static_cast<std::int64_t>(std::fmin(std::fmax(quotient, -0x1.0p62), 0x1.0p62)));
    }
    case BinRule::Kind::kIdentity:
    case BinRule::Kind::kNone: break;
  }
  return IntegerValue(v);
}

Status Validate(const BinRule& rule) {
  if (rule.kind != BinRule::Kind::kWidth || (rule.width > 0 && std::isfinite(rule.width))) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("width of a bin is {}: expected a finite number above 0", rule.width));
}

}  // namespace tarn::worker

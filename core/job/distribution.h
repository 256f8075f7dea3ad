// A distribution of numbers that are not negative, as a job file names it:
//
//   0.01  constant(0.01)    uniform(LOW, HIGH)    exponential(MEAN)
//   lognormal(MEDIAN, SIGMA): SIGMA is the standard deviation of the logarithm
//   pareto(LOW, SHAPE): at least LOW; the smaller SHAPE > 1, the heavier the tail
//
// Plain values; worker/train/delays.h draws from them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

struct Distribution {
  enum class Kind : std::uint8_t { kConstant, kUniform, kExponential, kLognormal, kPareto };
  static constexpr double kMax = 1e6;  // of each number

  Kind kind = Kind::kConstant;
  double a = 0, b = 0;  // in the order of the text; kConstant and kExponential have only `a`
  friend bool operator==(const Distribution&, const Distribution&) = default;
};

// "lognormal(0.01, 0.5)"; a constant is its number alone: "0.01".
std::string ToString(const Distribution& distribution);
// kInvalidArgument: the message has the text, and what was expected.
Expected<Distribution> ParseDistribution(std::string_view text);

}  // namespace tarn

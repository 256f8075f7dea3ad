// Draws numbers 0 .. n-1 with probability proportional to 1 / (i + 1)^exponent, by rejection-inversion (Hoermann and
// Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", 1996), which
// needs no table and few operations per draw.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/hash.h"

namespace tarn::bench {

class Zipf {
 public:
  Zipf(std::uint64_t n, double exponent)
      : n_(n),
        exponent_(exponent),
        low_(Integral(1.5) - 1),
        high_(Integral(static_cast<double>(n) + 0.5)),
        sure_(2 - Inverse(Integral(2.5) - Density(2))) {}

  std::uint64_t Next(SplitMix& random) const {
    for (;;) {
      const double u = high_ + random.Unit() * (low_ - high_);
      const double x = Inverse(u);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
      if (k - x <= sure_ || u >= Integral(k + 0.5) - Density(k)) return static_cast<std::uint64_t>(k) - 1;
    }
  }

 private:
  double Density(double x) const { return std::exp(-exponent_ * std::log(x)); }
  double Integral(double x) const {
    const double log = std::log(x), t = (1 - exponent_) * log;
    return log * (std::abs(t) > 1e-8 ? std::expm1(t) / t : 1 + t / 2);
  }
  double Inverse(double x) const {
    const double t = std::max(-1.0, x * (1 - exponent_));
    return std::exp(x * (std::abs(t) > 1e-8 ? std::log1p(t) / t : 1 - t / 2));
  }

  std::uint64_t n_;
  double exponent_;
  double low_, high_, sure_;
};

}  // namespace tarn::bench

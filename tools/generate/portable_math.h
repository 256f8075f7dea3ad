// Exponential, logarithm and normal quantile from IEEE additions, multiplications, divisions and square roots alone.
// The C library's differ in the last bit between versions and processors, and generated data must not: the same
// bytes on every machine that compiles without contraction.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tarn::generate {

// e^x for |x| <= 700, relative error below 1e-15.
constexpr double PortableExp(double x) {
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  constexpr double kInverseFactorials[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                           1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                           1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
  const auto k = static_cast<std::int64_t>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  const double r = (x - static_cast<double>(k) * kLn2High) - static_cast<double>(k) * kLn2Low;
  double sum = 0;
  for (double c : kInverseFactorials) sum = (sum + c) * r;
  const double power = std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
  return (1 + (r + sum * r)) * power;
}

// ln x for finite x > 0 that is not denormal, relative error below 1e-15 away from 1. From
// ln m = 2 artanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)).
constexpr double PortableLog(double x) {
  constexpr double kSqrt2 = 1.4142135623730951;
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto k = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m >= kSqrt2) {
    m *= 0.5;
    ++k;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (double odd = 21; odd >= 3; odd -= 2) sum = (sum + 1 / odd) * s2;
  return static_cast<double>(k) * kLn2High + (static_cast<double>(k) * kLn2Low + 2 * (s + s * sum));
}

// The x below which a standard normal falls with probability p, 0 < p < 1; absolute error below 1e-13. Algorithm
// AS 241, PPND16 (Wichura, Applied Statistics 37, 1988).
inline double NormalQuantile(double p) {
  const auto ratio = [](const double(&n)[8], const double(&d)[8], double r) {
    double a = n[7], b = d[7];
    for (int i = 6; i >= 0; --i) {
      a = a * r + n[i];
      b = b * r + d[i];
    }
    return a / b;
  };
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    constexpr double kA[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                              1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                              3.3430575583588128105e4, 2.5090809287301226727e3};
    constexpr double kB[8] = {1.0,
                              4.2313330701600911252e1,
                              6.8718700749205790830e2,
                              5.3941960214247511077e3,
                              2.1213794301586595867e4,
                              3.9307895800092710610e4,
                              2.8729085735721942674e4,
                              5.2264952788528545610e3};
    return q * ratio(kA, kB, 0.180625 - q * q);
  }
  double r = std::sqrt(-PortableLog(q < 0 ? p : 1 - p));
  if (r <= 5) {
    constexpr double kC[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                              3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                              2.27238449892691845833e-2, 7.74545014278341407640e-4};
    constexpr double kD[8] = {1.0,
                              2.05319162663775882187e0,
                              1.67638483018380384940e0,
                              6.89767334985100004550e-1,
                              1.48103976427480074590e-1,
                              1.51986665636164571966e-2,
                              5.47593808499534494600e-4,
                              1.05075007164441684324e-9};
    r = ratio(kC, kD, r - 1.6);
  } else {
    constexpr double kE[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                              2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                              2.71155556874348757815e-5, 2.01033439929228813265e-7};
    constexpr double kF[8] = {1.0,
                              5.99832206555887937690e-1,
                              1.36929880922735805310e-1,
                              1.48753612908506148525e-2,
                              7.86869131145613259100e-4,
                              1.84631831751005468180e-5,
                              1.42151175831644588870e-7,
                              2.04426310338993978564e-15};
    r = ratio(kE, kF, r - 5);
  }
  return q < 0 ? -r : r;
}

}  // namespace tarn::generate

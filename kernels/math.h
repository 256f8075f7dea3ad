// Elementary functions in double from + - * / and bit operations alone. libm chooses its code by the processor, so its
// last bits differ between machines; those of these functions do not, on GPUs either. Functions that are called in
// loops over arrays have no branches, so that the loops become vectors. (__builtin_bit_cast: CUDA's C++17 has no
// std::bit_cast.)
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace tarn::kernels::math {

inline constexpr double kPi = 0x1.921fb54442d18p+1;
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits: k * kLn2High is exact for every exponent k
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// base^n by repeated squaring.
TARN_HOST_DEVICE constexpr double Power(double base, std::uint64_t n) {
  double result = 1;
  for (; n != 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return result;
}

// e^x, relative error below 1e-15, for x in [-708, 709]; x outside is clamped. NaN: NaN.
TARN_HOST_DEVICE inline double Exp(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  x = x < -708.0 ? -708.0 : x;
  x = x > 709.0 ? 709.0 : x;
  const double shifted = x * kLog2E + kRound;
  const double k = shifted - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2: Taylor to r^13
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * __builtin_bit_cast(double, (__builtin_bit_cast(std::uint64_t, shifted) + 1023) << 52);
}

// 2 atanh(s) = log((1 + s) / (1 - s)) from its series, for |s| <= 1/3.
TARN_HOST_DEVICE inline double TwiceAtanh(double s) {
  const double z = s * s;
  double p = 1.0 / 33.0;
  p = p * z + 1.0 / 31.0;
  p = p * z + 1.0 / 29.0;
  p = p * z + 1.0 / 27.0;
  p = p * z + 1.0 / 25.0;
  p = p * z + 1.0 / 23.0;
  p = p * z + 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  p = p * z + 1.0;
  return 2.0 * s * p;
}

// log(x) for positive normal x, relative error below 1e-15. NaN: NaN.
TARN_HOST_DEVICE inline double Log(double x) {
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdULL;
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x);
  const std::int64_t k = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = __builtin_bit_cast(double, bits - (static_cast<std::uint64_t>(k) << 52));
  const double log_m = TwiceAtanh((m - 1.0) / (m + 1.0));  // m in [sqrt(1/2), sqrt(2))
  const double log_x = double(k) * kLn2High + (double(k) * kLn2Low + log_m);
  return x == x ? log_x : x;
}

// The base-2 logarithm of a finite number above 0, with an error of about 1e-12; exact for powers of two.
TARN_HOST_DEVICE inline double Log2(double x) {
  constexpr double kTwoOverLn2 = 2.885390081777926814720;
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  if (exponent == -1023) return Log2(x * 0x1p60) - 60;  // subnormal
  const double m = __builtin_bit_cast(double, (bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  const double z = (m - 1) / (m + 1), square = z * z;  // m in [1, 2): log2(m) = 2 / ln(2) atanh(z)
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent + kTwoOverLn2 * z * sum;
}

// cos(pi t) for t in [0, 1], absolute error below 1e-15: sin(pi (1/2 - t)) by Taylor to x^21.
TARN_HOST_DEVICE inline double CosPi(double t) {
  const double x = kPi * (0.5 - t);
  const double z = x * x;
  double p = 1.0;
  for (int n = 21; n >= 3; n -= 2) p = 1.0 - p * (z / double(n * (n - 1)));
  return x * p;
}

}  // namespace tarn::kernels::math

// Shows that the elementary functions of kernels/math.h are as accurate as they say, against libm in long double.
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/hash.h"
#include "kernels/normal_quantile.h"

namespace tarn::kernels::math {
namespace {

double RelativeError(double actual, long double expected) {
  if (expected == 0) return std::abs(actual);
  return double(std::abs((static_cast<long double>(actual) - expected) / expected));
}

TEST(MathTest, ExpIsAccurateAndClamped) {
  SplitMix random(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = -708 + 1417 * random.Unit();
    ASSERT_LT(RelativeError(Exp(x), std::exp(static_cast<long double>(x))), 1e-15) << x;
  }
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-1e6), Exp(-708.0));
  EXPECT_EQ(Exp(1e6), Exp(709.0));
  EXPECT_TRUE(std::isnan(Exp(NAN)));
}

TEST(MathTest, LogIsAccurate) {
  SplitMix random(2);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(0.5 + random.Unit(), int(random.Below(2000)) - 1000);
    ASSERT_LT(RelativeError(Log(x), std::log(static_cast<long double>(x))), 1e-15) << x;
    const double near_one = 1.0 + (random.Unit() - 0.5) * 1e-3;
    ASSERT_LT(RelativeError(Log(near_one), std::log(static_cast<long double>(near_one))), 1e-15) << near_one;
  }
  EXPECT_EQ(Log(1.0), 0.0);
}

TEST(MathTest, Log2IsAccurate) {
  SplitMix random(4);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(0.5 + random.Unit(), int(random.Below(2000)) - 1000);
    ASSERT_NEAR(Log2(x), double(std::log2(static_cast<long double>(x))), 1e-12 * (1 + std::abs(std::log2(x)))) << x;
  }
  for (const double x : {1.0, 2.0, 0.5, 1e-30, 0.999999, 1e-310})
    EXPECT_NEAR(Log2(x), std::log2(x), 1e-12 * (1 + std::abs(std::log2(x)))) << x;
  for (const int exponent : {-1074, -1023, -1022, 0, 5, 1023})
    EXPECT_EQ(Log2(std::ldexp(1.0, exponent)), exponent) << exponent;
}

TEST(MathTest, CosPiIsAccurate) {
  for (int i = 0; i <= 10000; ++i) {
    const double t = i / 10000.0;
    ASSERT_NEAR(CosPi(t), double(std::cos(3.141592653589793238462643L * static_cast<long double>(t))), 1e-15) << t;
  }
}

TEST(MathTest, PowerIsRepeatedMultiplication) {
  EXPECT_EQ(Power(0.9, 0), 1.0);
  EXPECT_EQ(Power(0.5, 10), 0x1p-10);
  EXPECT_EQ(Power(3.0, 13), 1594323.0);
  EXPECT_LT(RelativeError(Power(0.999, 100000), std::pow(0.999L, 100000)), 1e-11);  // 0.999 itself is rounded
  EXPECT_EQ(Power(0.9, std::uint64_t{1} << 40), 0.0);
}

// Phi(NormalQuantile(u)) == u, in units of u: d(log u) = phi(z) / Phi(z) dz, so that the error of z is bounded too.
TEST(MathTest, NormalQuantileInvertsTheDistribution) {
  SplitMix random(4);
  for (int i = 0; i < 100000; ++i) {
    const double u = i % 2 == 0 ? random.Unit() : std::ldexp(0.5 + random.Unit(), -int(random.Below(52)) - 2);
    if (u == 0) continue;
    const long double z = NormalQuantile(u);
    const long double back = 0.5L * std::erfc(-z / std::sqrt(2.0L));
    const long double density = std::exp(-z * z / 2) / std::sqrt(2 * 3.141592653589793238462643L);
    const double error = double(std::abs(back - static_cast<long double>(u)) / density);  // of z, absolute
    ASSERT_LT(error, 1e-14 * std::max(0.01, double(std::abs(z)))) << u;
  }
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
  EXPECT_EQ(NormalQuantile(0.25), -NormalQuantile(0.75));
  EXPECT_LT(NormalQuantile(1.0 - 0x1p-53), 8.3);
  EXPECT_GT(NormalQuantile(0x1p-53), -8.3);
}

}  // namespace
}  // namespace tarn::kernels::math

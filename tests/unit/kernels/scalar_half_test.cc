// Shows that every bf16 and fp16 pattern widens exactly and narrows back to itself, that narrowing rounds to nearest
// even at every boundary between two neighbours, and that overflow, subnormals, signs and NaN follow IEEE 754.
#include "tests/unit/kernels/scalar_half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/hash.h"

namespace tarn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of an fp16 pattern by its definition.
double Fp16Value(std::uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryFp16PatternWidensToItsValue) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto half = std::uint16_t(h);
    const float value = FloatFromFp16(half);
    if ((half & 0x7c00) != 0x7c00) {
      ASSERT_EQ(double(value), Fp16Value(half)) << h;
      ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << h;
    } else if ((half & 0x3ff) == 0) {
      ASSERT_EQ(value, (half & 0x8000) != 0 ? -kInfinity : kInfinity);
    } else {
      ASSERT_TRUE(std::isnan(value)) << h;
    }
  }
}

TEST(Half, EveryPatternIsNarrowedToItself) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto half = std::uint16_t(h);
    const bool fp16_nan = (half & 0x7fff) > 0x7c00, bf16_nan = (half & 0x7fff) > 0x7f80;
    ASSERT_EQ(Fp16FromFloat(FloatFromFp16(half)), fp16_nan ? half | 0x0200 : half) << h;
    ASSERT_EQ(Bf16FromFloat(FloatFromBf16(half)), bf16_nan ? half | 0x0040 : half) << h;
  }
}

// Between each finite pattern and the next, values below the middle are rounded down, above it up, and the middle to
// even.
template <typename Narrow, typename Widen>
void CheckRounding(std::uint16_t largest, Narrow narrow, Widen widen) {
  for (std::uint32_t h = 0; h < largest; ++h) {
    const auto low = std::uint16_t(h), high = std::uint16_t(h + 1);
    const float middle = float((double(widen(low)) + double(widen(high))) / 2);
    ASSERT_EQ(narrow(middle), (low & 1) == 0 ? low : high) << h;
    ASSERT_EQ(narrow(-middle), ((low & 1) == 0 ? low : high) | 0x8000) << h;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), low) << h;
    ASSERT_EQ(narrow(std::nextafter(middle, kInfinity)), high) << h;
  }
}

TEST(Half, Fp16RoundsToNearestEven) { CheckRounding(0x7bff, Fp16FromFloat, FloatFromFp16); }
TEST(Half, Bf16RoundsToNearestEven) { CheckRounding(0x7f7f, Bf16FromFloat, FloatFromBf16); }

TEST(Half, Overflow) {
  EXPECT_EQ(Fp16FromFloat(65504.0f), 0x7bff);
  EXPECT_EQ(Fp16FromFloat(65519.996f), 0x7bff);
  EXPECT_EQ(Fp16FromFloat(65520.0f), 0x7c00);  // the middle to 65536 goes to infinity
  EXPECT_EQ(Fp16FromFloat(-1e30f), 0xfc00);
  EXPECT_EQ(Fp16FromFloat(kInfinity), 0x7c00);
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(-kInfinity), 0xff80);
}

TEST(Half, NanStaysNan) {
  for (std::uint32_t payload : {1u, 0x1000u, 0x1fffu, 0x400000u, 0x7fffffu})
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      const float nan = std::bit_cast<float>(sign | 0x7f800000u | payload);
      EXPECT_TRUE(std::isnan(FloatFromFp16(Fp16FromFloat(nan))));
      EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(nan))));
      EXPECT_EQ(Fp16FromFloat(nan) >> 15, sign >> 31);
      EXPECT_EQ(Bf16FromFloat(nan) >> 15, sign >> 31);
    }
}

TEST(Half, SmallestValues) {
  EXPECT_EQ(Fp16FromFloat(0x1p-24f), 1);
  EXPECT_EQ(Fp16FromFloat(0x1p-25f), 0);  // a tie with zero, which is even
  EXPECT_EQ(Fp16FromFloat(0x1.000002p-25f), 1);
  EXPECT_EQ(Fp16FromFloat(-0x1p-30f), 0x8000);
  EXPECT_EQ(Fp16FromFloat(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(Fp16FromFloat(-0.0f), 0x8000);
  EXPECT_EQ(Bf16FromFloat(-0.0f), 0x8000);
}

// Random floats are rounded to the nearest pattern: no neighbour is closer.
TEST(Half, RandomFloatsAreRoundedToTheNearest) {
  SplitMix words(11);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(std::uint32_t(words.Next()));
    if (!(std::abs(value) < 65504.0f)) continue;
    const std::uint16_t half = Fp16FromFloat(value);
    const double error = std::abs(double(value) - Fp16Value(half));
    const int neighbours[] = {(half & 0x7fff) == 0 ? half : half - 1, (half & 0x7fff) == 0x7bff ? half : half + 1};
    for (int neighbour : neighbours)
      ASSERT_LE(error, std::abs(double(value) - Fp16Value(std::uint16_t(neighbour)))) << value;
  }
}

}  // namespace
}  // namespace tarn

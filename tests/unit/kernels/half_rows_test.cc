// Shows that narrowing rows to 16 bits gives the bits of scalar_half.h on every instruction set, keeps values of the
// format, and has no bias, and that widening is exact.
#include "kernels/half_rows.h"

#include <cfloat>
#include <cmath>
#include <vector>

#include "tests/unit/kernels/kernel_test_util.h"
#include "tests/unit/kernels/scalar_half.h"

namespace tarn::kernels {
namespace {

constexpr ValueCodec kCodecs[] = {ValueCodec::kBf16, ValueCodec::kFp16};

float Widened(ValueCodec codec, std::uint16_t half) {
  return codec == ValueCodec::kBf16 ? FloatFromBf16(half) : FloatFromFp16(half);
}
std::uint16_t ByChance(ValueCodec codec, float value, std::uint32_t random) {
  return codec == ValueCodec::kBf16 ? Bf16ByChance(value, random) : Fp16ByChance(value, random);
}

std::vector<float> HardFloats() {
  SplitMix random(5);
  std::vector<float> out = {0.0f,     -0.0f,    65504.0f, 65519.0f, 70000.0f,  -1e30f,        3.4e38f,
                            0x1p-24f, 0x1p-25f, 0x1p-14f, INFINITY, -INFINITY, std::nanf("1")};
  for (std::uint32_t half = 0; half < 0x10000; half += 13)
    for (const ValueCodec codec : kCodecs)
      for (const std::uint32_t delta : {0u, 1u, 0x1fffu, 0xffffffffu})
        out.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(Widened(codec, std::uint16_t(half))) + delta));
  while (out.size() % 7 != 0) out.push_back(std::bit_cast<float>(std::uint32_t(random.Next())));
  return out;
}

TEST(HalfRowsTest, NarrowingMatchesTheScalarFunctionsOnEveryTarget) {
  const std::vector<float> in = HardFloats();
  for (const std::uint32_t dim : {1u, 7u, 16u, 33u}) {
    const std::size_t n = in.size() / dim;
    std::vector<std::uint64_t> seeds(n);
    for (std::size_t i = 0; i < n; ++i) seeds[i] = Mix64(i);
    for (const ValueCodec codec : kCodecs)
      ForEachTarget([&](const char* name) {
        std::vector<std::uint16_t> out(n * dim, 0xdead);
        std::vector<std::uint16_t*> rows(n);
        for (std::size_t i = 0; i < n; ++i) rows[i] = out.data() + i * dim;
        NarrowRows(codec, dim, n, in.data(), seeds.data(), rows.data());
        for (std::size_t i = 0; i < n * dim; ++i)
          ASSERT_EQ(out[i], ByChance(codec, in[i], ChanceWord(seeds[i / dim], std::uint32_t(i % dim))))
              << name << " " << in[i];
        std::vector<float> wide(n * dim);
        WidenRows(codec, dim, n, rows.data(), wide.data());
        for (std::size_t i = 0; i < n * dim; ++i)
          ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(Widened(codec, out[i])));
      });
  }
}

TEST(HalfRowsTest, ValuesOfTheFormatAreKept) {
  for (std::uint32_t half = 0; half < 0x10000; ++half)
    for (const ValueCodec codec : kCodecs) {
      const float value = Widened(codec, std::uint16_t(half));
      if (std::isnan(value)) continue;
      for (const std::uint32_t random : {0u, 0x12345678u, 0xffffffffu})
        ASSERT_EQ(ByChance(codec, value, random), half) << value;
    }
}

TEST(HalfRowsTest, RandomRoundingMakesNoInfinity) {
  for (const std::uint32_t random : {0u, 0xffffffffu}) {
    EXPECT_EQ(Fp16ByChance(1e6f, random), 0x7bff);
    EXPECT_EQ(Fp16ByChance(-65519.0f, random), 0xfbff);
    EXPECT_EQ(Bf16ByChance(3.4e38f, random), 0x7f7f);
    EXPECT_EQ(Fp16ByChance(INFINITY, random), 0x7c00);
    EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16ByChance(std::nanf("1"), random))));
  }
}

TEST(HalfRowsTest, TheNearestRowHasNoInfinityForFiniteValues) {
  const std::vector<float> in = {1.0f,  -2.5f,   65519.0f, 65520.0f, -70000.0f,
                                 1e38f, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY};
  for (const ValueCodec codec : kCodecs) {
    std::vector<std::uint16_t> row(in.size());
    NearestRow(codec, static_cast<std::uint32_t>(in.size()), in.data(), row.data());
    const float largest = codec == ValueCodec::kFp16 ? 65504.0f : 0x1.fep127f;
    EXPECT_EQ(Widened(codec, row[0]), 1.0f);
    EXPECT_EQ(Widened(codec, row[1]), -2.5f);
    EXPECT_EQ(Widened(codec, row[6]), largest);
    EXPECT_EQ(Widened(codec, row[7]), -largest);
    EXPECT_EQ(Widened(codec, row[8]), INFINITY);
    EXPECT_EQ(Widened(codec, row[9]), -INFINITY);
    for (std::size_t j = 0; j < 8; ++j)
      EXPECT_TRUE(std::isfinite(Widened(codec, row[j]))) << Name(codec) << " " << in[j];
  }
}

// The mean over many seeds is the value: within five standard errors, for values between two neighbours of any size.
TEST(HalfRowsTest, RandomRoundingHasNoBias) {
  constexpr std::uint32_t kDim = 4096;
  constexpr std::size_t kRows = 64;
  for (const ValueCodec codec : kCodecs)
    for (const float value : {1.001f, -0.30017f, 777.77f, 0x1.234p-16f, 3.3e-7f, -1e-3f}) {
      const std::vector<float> in(kDim * kRows, value);
      std::vector<std::uint16_t> out(in.size());
      std::vector<std::uint16_t*> rows(kRows);
      std::vector<std::uint64_t> seeds(kRows);
      for (std::size_t i = 0; i < kRows; ++i) rows[i] = out.data() + i * kDim, seeds[i] = Mix64(i ^ 99);
      NarrowRows(codec, kDim, kRows, in.data(), seeds.data(), rows.data());
      double sum = 0, low = INFINITY, high = -INFINITY;
      for (const std::uint16_t half : out) {
        const double got = Widened(codec, half);
        sum += got;
        low = std::min(low, got);
        high = std::max(high, got);
      }
      const auto n = double(in.size());
      EXPECT_LE(low, value);
      EXPECT_GE(high, value);
      EXPECT_NEAR(sum / n, value, 5 * (high - low) / 2 / std::sqrt(n)) << Name(codec) << " " << value;
    }
}

}  // namespace
}  // namespace tarn::kernels

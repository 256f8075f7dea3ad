// Shows that int8 rows keep their values to half a step of their scale, how zeros, tiny and non-finite values are
// encoded, and that the bits are the same on every instruction set and alignment.
#include "kernels/quantize.h"

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

std::vector<float> Through(std::uint32_t dim, const std::vector<float>& in, std::size_t shift = 0) {
  const std::size_t n = in.size() / dim;
  std::vector<std::byte> bytes(n * Int8RowBytes(dim) + shift + 1, std::byte{0x5a});
  EncodeInt8Rows(dim, n, in.data(), bytes.data() + shift);
  EXPECT_EQ(bytes.back(), std::byte{0x5a}) << "wrote beyond its end";
  std::vector<float> out = Poisoned(in.size());
  DecodeInt8Rows(dim, n, bytes.data() + shift, out.data());
  return out;
}

TEST(QuantizeTest, ErrorIsAtMostHalfAStep) {
  SplitMix random(1);
  for (const std::uint32_t dim : {1u, 2u, 7u, 16u, 33u, 4096u})
    for (const std::size_t n : {0, 1, 5})
      for (const double reach : {1e-30, 1.0, 3e38}) {
        const std::vector<float> in = RandomFloats(n * dim, random, -reach, reach);
        const std::vector<float> out = Through(dim, in);
        for (std::size_t i = 0; i < n; ++i) {
          double largest = 0;
          for (std::size_t j = 0; j < dim; ++j) largest = std::max(largest, std::abs(double(in[i * dim + j])));
          for (std::size_t j = 0; j < dim; ++j)
            ASSERT_LE(std::abs(double(out[i * dim + j]) - double(in[i * dim + j])), largest / 254 * (1 + 1e-5));
        }
      }
}

TEST(QuantizeTest, TheLargestValueIsKept) {
  const std::vector<float> out = Through(4, {-2.54f, 1.27f, 0.0f, 0.02f});
  EXPECT_FLOAT_EQ(out[0], -2.54f);
  EXPECT_NEAR(out[1], 1.27f, 0.0101f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_NEAR(out[3], 0.02f, 1e-6);
}

TEST(QuantizeTest, FiniteValuesStayFinite) {
  std::vector<float> in;
  for (float x = std::numeric_limits<float>::max(); in.size() < 1000; x = std::nextafter(x, 0.0f)) in.push_back(x);
  const std::vector<float> out = Through(1, in);
  for (std::size_t i = 0; i < in.size(); ++i) ASSERT_NEAR(out[i] / in[i], 1.0f, 1e-6f) << in[i];
}

TEST(QuantizeTest, TiesGoToTheEvenNeighbour) {
  const std::vector<float> out = Through(4, {127.0f, 0.5f, 1.5f, -2.5f});
  EXPECT_EQ(out, (std::vector<float>{127.0f, 0.0f, 2.0f, -2.0f}));
}

TEST(QuantizeTest, ZerosAndTheTiniestGiveZeros) {
  for (const float tiny : {0.0f, -0.0f, 1e-45f, -1e-40f})
    EXPECT_EQ(Through(2, {tiny, 0.0f}), (std::vector<float>{0.0f, 0.0f})) << tiny;
}

TEST(QuantizeTest, NonFiniteValuesStayNonFinite) {
  for (const float bad : {kPoison, HUGE_VALF, -HUGE_VALF}) {
    const std::vector<float> out = Through(3, {1.0f, bad, 2.0f, 1.0f, 2.0f, 3.0f});
    for (int j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(out[j]));
    for (int j = 3; j < 6; ++j) EXPECT_TRUE(std::isfinite(out[j])) << "the next row is its own";
  }
}

TEST(QuantizeTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(2);
  for (const std::uint32_t dim : {5u, 16u, 100u}) {
    const std::vector<float> in = RandomFloats(50 * dim, random);
    for (const std::size_t shift : {1, 3, 7}) EXPECT_TRUE(SameBits(Through(dim, in), Through(dim, in, shift)));
    ExpectSameBitsOnEveryTarget([&] { return Through(dim, in); });
  }
}

}  // namespace
}  // namespace tarn::kernels

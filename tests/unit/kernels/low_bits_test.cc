// Shows that rows of a few bits a value have the values of their papers, that random rounding is right on average, and
// how zeros and non-finite values are encoded.
#include "kernels/low_bits.h"

#include <cmath>
#include <numeric>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr ValueCodec kCodecs[] = {ValueCodec::kQsgd, ValueCodec::kTernary, ValueCodec::kSign, ValueCodec::kOneBit};
constexpr std::uint32_t kDims[] = {1, 2, 3, 7, 8, 9, 16, 33, 4096};

std::vector<std::byte> Encoded(ValueCodec codec, std::uint32_t dim, const std::vector<float>& in,
                               std::size_t shift = 0) {
  const std::size_t n = in.size() / dim;
  std::vector<std::byte> bytes(n * CodecRowBytes(codec, dim) + shift + 1, std::byte{0x5a});
  EncodeLowBits(codec, dim, n, in.data(), bytes.data() + shift);
  EXPECT_EQ(bytes.back(), std::byte{0x5a}) << "wrote beyond its end";
  bytes.pop_back();
  bytes.erase(bytes.begin(), bytes.begin() + std::ptrdiff_t(shift));
  return bytes;
}

std::vector<float> Through(ValueCodec codec, std::uint32_t dim, const std::vector<float>& in, std::size_t shift = 0) {
  std::vector<std::byte> bytes(shift, std::byte{0});
  const std::vector<std::byte> encoded = Encoded(codec, dim, in, shift);
  bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  std::vector<float> out = Poisoned(in.size());
  DecodeLowBits(codec, dim, in.size() / dim, bytes.data() + shift, out.data());
  return out;
}

double Norm(const float* row, std::uint32_t dim) {
  double squares = 0;
  for (std::uint32_t j = 0; j < dim; ++j) squares += double(row[j]) * double(row[j]);
  return std::sqrt(squares);
}

TEST(LowBitsTest, QsgdRoundsToALevelNextToTheValue) {
  SplitMix random(1);
  for (const std::uint32_t dim : kDims) {
    const std::vector<float> in = RandomFloats(3 * dim, random, -2, 3);
    const std::vector<float> out = Through(ValueCodec::kQsgd, dim, in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double level = Norm(in.data() + i / dim * dim, dim) / 7;
      ASSERT_LE(std::abs(double(out[i]) - double(in[i])), level * (1 + 1e-5)) << "dim " << dim;
      const double steps = double(out[i]) / level;
      ASSERT_NEAR(steps, std::round(steps), 1e-4);
    }
  }
}

TEST(LowBitsTest, TernaryIsZeroOrTheLargest) {
  SplitMix random(2);
  for (const std::uint32_t dim : kDims) {
    const std::vector<float> in = RandomFloats(3 * dim, random, -2, 2);
    const std::vector<float> out = Through(ValueCodec::kTernary, dim, in);
    for (std::size_t row = 0; row < 3; ++row) {
      float largest = 0;
      for (std::size_t j = 0; j < dim; ++j) largest = std::max(largest, std::abs(in[row * dim + j]));
      for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
        ASSERT_TRUE(out[i] == 0 || out[i] == std::copysign(largest, in[i])) << "dim " << dim;
        if (std::abs(in[i]) == largest) {
          ASSERT_EQ(out[i], in[i]) << "with probability 1";
        }
      }
    }
  }
}

// Each row has the same four tested values; its other values change its random numbers.
TEST(LowBitsTest, RandomRoundingIsRightOnAverage) {
  constexpr std::uint32_t kDim = 8;
  constexpr std::size_t kRows = 40'000;
  const std::vector<float> same = {0.9f, -0.3f, 0.05f, -0.001f};
  SplitMix random(3);
  std::vector<float> in;
  for (std::size_t i = 0; i < kRows; ++i) {
    in.insert(in.end(), same.begin(), same.end());
    for (std::uint32_t j = 4; j < kDim; ++j) in.push_back(float(random.Unit()) * 0.5f);
  }
  for (const ValueCodec codec : {ValueCodec::kQsgd, ValueCodec::kTernary}) {
    const std::vector<float> out = Through(codec, kDim, in);
    for (std::size_t j = 0; j < same.size(); ++j) {
      double sum = 0, squares = 0;
      for (std::size_t i = 0; i < kRows; ++i) {
        const double error = double(out[i * kDim + j]) - double(same[j]);
        sum += error;
        squares += error * error;
      }
      const double deviation = std::sqrt(squares) + 1e-6 * kRows;  // of the sum
      EXPECT_LT(std::abs(sum), 5 * deviation) << Name(codec) << " of " << same[j];
      if (j > 0) {
        EXPECT_GT(squares, 0) << "it is rounded";
      }
    }
  }
}

TEST(LowBitsTest, SignHasTheMeanMagnitude) {
  SplitMix random(4);
  for (const std::uint32_t dim : kDims) {
    std::vector<float> in = RandomFloats(2 * dim, random, -1, 2);
    in[0] = 0;
    const std::vector<float> out = Through(ValueCodec::kSign, dim, in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < dim; ++j) sum += std::abs(double(in[i / dim * dim + j]));
      ASSERT_FLOAT_EQ(out[i], float(in[i] < 0 ? -sum / dim : sum / dim)) << "dim " << dim;
    }
  }
}

TEST(LowBitsTest, OneBitHasTheMeansOfBothSides) {
  SplitMix random(5);
  for (const std::uint32_t dim : kDims) {
    const std::vector<float> in = RandomFloats(2 * dim, random, -1, 2);
    const std::vector<float> out = Through(ValueCodec::kOneBit, dim, in);
    for (std::size_t row = 0; row < 2; ++row) {
      double sums[2] = {0, 0};
      std::size_t counts[2] = {0, 0};
      for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
        sums[in[i] < 0] += double(in[i]);
        ++counts[in[i] < 0];
      }
      for (std::size_t i = row * dim; i < (row + 1) * dim; ++i)
        ASSERT_FLOAT_EQ(out[i], float(sums[in[i] < 0] / double(counts[in[i] < 0]))) << "dim " << dim;
    }
  }
}

TEST(LowBitsTest, EqualRowsHaveEqualBytes) {
  SplitMix random(6);
  for (const ValueCodec codec : kCodecs)
    for (const std::uint32_t dim : kDims) {
      const std::vector<float> row = RandomFloats(dim, random, -1, 1);
      std::vector<float> twice = row;
      twice.insert(twice.end(), row.begin(), row.end());
      const std::vector<std::byte> bytes = Encoded(codec, dim, twice);
      const auto half = std::ptrdiff_t(bytes.size() / 2);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + half, bytes.begin() + half)) << Name(codec);
      EXPECT_EQ(bytes, Encoded(codec, dim, twice, 3)) << "any alignment";
      EXPECT_EQ(Through(codec, dim, twice), Through(codec, dim, twice, 1));
    }
}

TEST(LowBitsTest, ZerosAndTheTiniestGiveZeros) {
  for (const ValueCodec codec : kCodecs)
    for (const float tiny : {0.0f, -0.0f, 1e-45f, -1e-40f})
      for (const float value : Through(codec, 3, {tiny, 0.0f, tiny})) EXPECT_EQ(value, 0.0f) << Name(codec) << tiny;
}

TEST(LowBitsTest, NonFiniteValuesStayNonFinite) {
  for (const ValueCodec codec : kCodecs)
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      const std::vector<float> out = Through(codec, 3, {1, bad, 2, 1, 1, 1});
      for (int j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(out[j])) << Name(codec);
      for (int j = 3; j < 6; ++j) EXPECT_FALSE(std::isnan(out[j])) << "only of that row";
    }
}

TEST(LowBitsTest, NoRows) {
  for (const ValueCodec codec : kCodecs) EXPECT_TRUE(Through(codec, 5, {}).empty());
}

}  // namespace
}  // namespace tarn::kernels

// Shows that the factors of a low-rank step follow a float64 reference of PowerSGD's algorithm 1, that iterations find
// the best approximation, and that bytes which encode no factors are refused.
#include "kernels/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/limits.h"
#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

struct Factors {
  Factors(std::size_t rows, std::uint32_t columns, std::uint32_t r)
      : n(rows), dim(columns), rank(r), left(n * rank), right(std::size_t{dim} * rank) {
    StartLowRank(dim, rank, 5, right.data());
  }
  void Step(const std::vector<float>& matrix) { FactorLowRank(n, dim, rank, matrix.data(), left.data(), right.data()); }
  std::vector<float> Product() const {
    std::vector<float> out(n * dim);
    MultiplyLowRank(n, dim, rank, left.data(), right.data(), out.data());
    return out;
  }
  double Error(const std::vector<float>& matrix) const {
    const std::vector<float> product = Product();
    double sum = 0;
    for (std::size_t i = 0; i < matrix.size(); ++i) sum += std::pow(double(matrix[i]) - double(product[i]), 2);
    return std::sqrt(sum);
  }

  std::size_t n;
  std::uint32_t dim, rank;
  std::vector<float> left, right;
};

TEST(LowRankTest, FollowsTheReference) {
  for (const auto& [n, dim, rank] : {std::tuple{1, 1, 1}, {7, 5, 2}, {40, 64, 4}, {128, 33, 1}}) {
    Factors f{static_cast<std::size_t>(n), static_cast<std::uint32_t>(dim), static_cast<std::uint32_t>(rank)};
    SplitMix random(9);
    const std::vector<float> m = RandomFloats(f.n * f.dim, random);
    const std::vector<double> q(f.right.begin(), f.right.end());
    f.Step(m);
    std::vector<double> p(f.n * f.rank);
    for (std::uint32_t c = 0; c < f.rank; ++c) {
      const auto at = [&](std::size_t i, std::uint32_t column) -> double& { return p[i * f.rank + column]; };
      for (std::size_t i = 0; i < f.n; ++i)
        for (std::uint32_t j = 0; j < f.dim; ++j) at(i, c) += double(m[i * f.dim + j]) * q[c * f.dim + j];
      for (std::uint32_t earlier = 0; earlier < c; ++earlier) {
        double share = 0;
        for (std::size_t i = 0; i < f.n; ++i) share += at(i, earlier) * at(i, c);
        for (std::size_t i = 0; i < f.n; ++i) at(i, c) -= share * at(i, earlier);
      }
      double norm = 0;
      for (std::size_t i = 0; i < f.n; ++i) norm += at(i, c) * at(i, c);
      for (std::size_t i = 0; i < f.n; ++i) at(i, c) /= std::sqrt(norm);
      for (std::size_t i = 0; i < f.n; ++i) EXPECT_NEAR(f.left[i * f.rank + c], at(i, c), 1e-4);
      for (std::uint32_t j = 0; j < f.dim; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < f.n; ++i) sum += double(m[i * f.dim + j]) * at(i, c);
        EXPECT_NEAR(f.right[c * f.dim + j], sum, 1e-3);
      }
    }
  }
}

TEST(LowRankTest, AMatrixOfTheRankIsExactAndStepsFindTheLargestPart) {
  const std::size_t n = 30;
  const std::uint32_t dim = 20;
  SplitMix random(3);
  const std::vector<float> a = RandomFloats(2 * n, random), b = RandomFloats(2 * dim, random);
  std::vector<float> m(n * dim);
  for (std::size_t i = 0; i < n; ++i)
    for (std::uint32_t j = 0; j < dim; ++j) m[i * dim + j] = 9 * a[i] * b[j] + a[n + i] * b[dim + j];
  Factors exact(n, dim, 2), more(n, dim, 3), one(n, dim, 1);
  exact.Step(m);
  EXPECT_LT(exact.Error(m), 1e-3);
  more.Step(m);
  EXPECT_LT(more.Error(m), 1e-3) << "a third column that the matrix does not have";
  one.Step(m);
  const double first = one.Error(m);
  for (int i = 0; i < 20; ++i) one.Step(m);
  EXPECT_LE(one.Error(m), first);
  EXPECT_GT(one.Error(m), 1e-2);
  std::vector<float> zeros(n * dim);
  one.Step(zeros);
  EXPECT_EQ(one.Error(zeros), 0);
  one.Step(m);
  EXPECT_LT(one.Error(m), first * 1.01) << "zeros leave the factor as it was";
}

TEST(LowRankTest, IsTheSameOnEveryInstructionSet) {
  ExpectSameBitsOnEveryTarget([&] {
    SplitMix random(4);
    Factors f(33, 17, 3);
    f.Step(RandomFloats(f.n * f.dim, random));
    std::vector<float> all = f.Product();
    all.insert(all.end(), f.left.begin(), f.left.end());
    return all;
  });
}

TEST(LowRankTest, BytesAreDecodedOrRefused) {
  Factors f(6, 4, 1);
  SplitMix random(4);
  f.Step(RandomFloats(24, random));
  std::vector<std::byte> bytes(LowRankBytes(6, 4, 1) + 1);
  std::byte* const left = EncodeRight(4, 1, f.right.data(), bytes.data());
  std::memcpy(left, f.left.data(), f.left.size() * sizeof(float));
  std::vector<float> out(24);
  const auto decode = [&](std::size_t size) {
    const Status status = DecodeLowRank(6, 4, 64, std::span(bytes).first(size), out.data());
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(decode(bytes.size() - 1), "");
  EXPECT_TRUE(SameBits(out, f.Product()));
  EXPECT_EQ(decode(bytes.size()), "factors: 45 bytes, expected 44 for 6 x 4 values of rank 1");
  EXPECT_EQ(decode(3), "factors: 3 bytes, expected at least 4");
  bytes[0] = std::byte{0};
  EXPECT_EQ(decode(bytes.size() - 1), "factors: rank 0, expected 1 to 64");
  bytes[0] = std::byte{65};
  EXPECT_EQ(decode(bytes.size() - 1), "factors: rank 65, expected 1 to 64");
  EXPECT_FALSE(LowRankPays(6, 4, 3));
  EXPECT_TRUE(LowRankPays(6, 4, 1));
}

}  // namespace
}  // namespace tarn::kernels

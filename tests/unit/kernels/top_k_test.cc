// Shows that the k largest magnitudes are the first k of a stable sort, for every k, with ties, zeros and non-finite
// values.
#include "kernels/top_k.h"

#include <algorithm>
#include <numeric>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

std::uint32_t Magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

std::vector<std::uint32_t> Sorted(const std::vector<float>& in, std::size_t k) {
  std::vector<std::uint32_t> order(in.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return Magnitude(in[a]) > Magnitude(in[b]); });
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

void ExpectTopK(const std::vector<float>& in, std::size_t k, TopKScratch& scratch) {
  std::vector<std::uint32_t> index(k + 1, 0xdeadbeef);
  std::vector<float> values = Poisoned(k + 1);
  TopK(in.size(), k, in.data(), index.data(), values.data(), scratch);
  EXPECT_EQ(index[k], 0xdeadbeef) << "wrote beyond its end";
  index.resize(k);
  ASSERT_EQ(index, Sorted(in, k)) << "k " << k << " of " << in.size();
  for (std::size_t i = 0; i < k; ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(in[index[i]]));
}

TEST(TopKTest, EqualsTheBeginningOfAStableSort) {
  SplitMix random(1);
  TopKScratch scratch;
  for (const std::size_t n : {0, 1, 2, 63, 1000, 70'001})
    for (const std::size_t k : {0, 1, 2, 10, 62, 63, 999, 1000, 35'000, 70'001})
      if (k <= n) ExpectTopK(RandomFloats(n, random), k, scratch);
}

TEST(TopKTest, OfEqualValuesTheFirstAreSelected) {
  SplitMix random(2);
  TopKScratch scratch;
  std::vector<float> in(500);
  for (float& v : in) v = float(int(random.Below(5)) - 2) * 0.5f;
  for (std::size_t k = 0; k <= in.size(); k += 7) ExpectTopK(in, k, scratch);
}

TEST(TopKTest, ZerosInfinityAndNaN) {
  TopKScratch scratch;
  const std::vector<float> in{0.0f, -0.0f, 1.0f, -HUGE_VALF, kPoison, HUGE_VALF, 1e-45f, -3e38f};
  for (std::size_t k = 0; k <= in.size(); ++k) ExpectTopK(in, k, scratch);
}

// Values that differ only in low bits fall into different buckets only in the last pass.
TEST(TopKTest, LowBitsCount) {
  TopKScratch scratch;
  for (const std::uint32_t n : {3000u, 65'537u}) {
    std::vector<float> in;
    for (std::uint32_t i = 0; i < n; ++i) in.push_back(std::bit_cast<float>(0x3f800000u + (i * 7919) % n));
    for (const std::size_t k : {1u, n / 2, n - 1}) ExpectTopK(in, k, scratch);
  }
}

TEST(TopKTest, AllEqual) {
  TopKScratch scratch;
  for (const float value : {0.0f, -2.5f, HUGE_VALF, kPoison})
    for (const std::size_t k : {0, 1, 6, 7}) ExpectTopK(std::vector<float>(7, value), k, scratch);
}

TEST(RowNormsTest, AgreeWithDoubles) {
  SplitMix random(5);
  for (const std::uint32_t dim : {1u, 3u, 8u, 33u})
    for (const std::size_t n : {0, 1, 17}) {
      const std::vector<float> rows = RandomFloats(n * dim, random);
      std::vector<double> expected(n, 0);
      for (std::size_t i = 0; i < rows.size(); ++i) expected[i / dim] += double(rows[i]) * double(rows[i]);
      for (double& e : expected) e = std::sqrt(e);
      std::vector<float> norms = Poisoned(n + 1);
      RowNorms(dim, n, rows.data(), norms.data());
      EXPECT_TRUE(std::isnan(norms[n])) << "wrote beyond its end";
      norms.resize(n);
      ExpectNear(norms, expected, 1e-7);
      ExpectSameBitsOnEveryTarget([&] {
        std::vector<float> again(n);
        RowNorms(dim, n, rows.data(), again.data());
        return again;
      });
    }
}

TEST(RowNormsTest, NonFiniteValuesGiveNonFiniteNorms) {
  const std::vector<float> rows{1.0f, kPoison, 2.0f, -HUGE_VALF, 3e38f, 3e38f, 1e-40f, 0.0f};
  std::vector<float> norms(4);
  RowNorms(2, 4, rows.data(), norms.data());
  EXPECT_TRUE(std::isnan(norms[0]));
  EXPECT_EQ(norms[1], HUGE_VALF);
  EXPECT_EQ(norms[2], HUGE_VALF) << "larger than any float";
  EXPECT_FLOAT_EQ(norms[3], 1e-40f) << "squares of tiny values do not vanish";
}

}  // namespace
}  // namespace tarn::kernels

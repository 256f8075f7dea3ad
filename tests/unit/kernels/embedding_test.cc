// Shows that bags and concatenations use the rows of their indices, that gradients are added to the same rows, and that
// both have the same bits on every instruction set.
#include "kernels/embedding.h"

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr std::uint32_t kWidths[] = {1, 3, 4, 8, 16, 17, 32, 64, 100};
constexpr std::uint32_t kRows = 23;

struct Bags {
  std::uint32_t dim;
  std::size_t samples;
  std::vector<float> rows, weights, grad_out;
  std::vector<std::uint32_t> offsets, inverse;
};

Bags RandomBags(std::uint32_t dim, std::size_t samples, SplitMix& random) {
  Bags b{.dim = dim, .samples = samples, .offsets = RandomOffsets(samples, 6, random)};
  b.rows = RandomFloats(std::size_t{kRows} * dim, random);
  b.inverse = RandomIndices(b.offsets.back(), kRows, random);
  b.weights = RandomFloats(b.offsets.back(), random);
  b.grad_out = RandomFloats(samples * dim, random);
  return b;
}

TEST(EmbeddingTest, BagForwardAgreesWithFloat64) {
  SplitMix random(1);
  for (const std::uint32_t dim : kWidths)
    for (const std::size_t samples : {0, 1, 50})
      for (const bool weighted : {false, true}) {
        const Bags b = RandomBags(dim, samples, random);
        std::vector<double> expected(samples * dim, 0.0);
        for (std::size_t s = 0; s < samples; ++s)
          for (std::size_t o = b.offsets[s]; o < b.offsets[s + 1]; ++o)
            for (std::uint32_t j = 0; j < dim; ++j)
              expected[s * dim + j] += (weighted ? double(b.weights[o]) : 1.0) * double(b.rows[b.inverse[o] * dim + j]);
        std::vector<float> out = Poisoned(samples * dim);
        EmbeddingBagForward(samples, dim, b.rows.data(), b.inverse.data(), b.offsets.data(),
                            weighted ? b.weights.data() : nullptr, out.data());
        ExpectNear(out, expected, 1e-6);
      }
}

TEST(EmbeddingTest, BagBackwardAddsToTheRows) {
  SplitMix random(2);
  for (const std::uint32_t dim : kWidths)
    for (const std::size_t samples : {0, 1, 50})
      for (const bool weighted : {false, true}) {
        const Bags b = RandomBags(dim, samples, random);
        std::vector<float> grad = RandomFloats(b.rows.size(), random);
        std::vector<double> expected(grad.begin(), grad.end());
        for (std::size_t s = 0; s < samples; ++s)
          for (std::size_t o = b.offsets[s]; o < b.offsets[s + 1]; ++o)
            for (std::uint32_t j = 0; j < dim; ++j)
              expected[b.inverse[o] * dim + j] +=
                  (weighted ? double(b.weights[o]) : 1.0) * double(b.grad_out[s * dim + j]);
        EmbeddingBagBackward(samples, dim, b.grad_out.data(), b.inverse.data(), b.offsets.data(),
                             weighted ? b.weights.data() : nullptr, grad.data());
        ExpectNear(grad, expected, 1e-5);
      }
}

TEST(EmbeddingTest, ASliceOfABatchKeepsItsOffsets) {
  SplitMix random(3);
  const Bags b = RandomBags(8, 20, random);
  std::vector<float> whole = Poisoned(20 * 8), parts = Poisoned(20 * 8);
  EmbeddingBagForward(20, 8, b.rows.data(), b.inverse.data(), b.offsets.data(), b.weights.data(), whole.data());
  for (std::size_t s = 0; s < 20; s += 5)
    EmbeddingBagForward(5, 8, b.rows.data(), b.inverse.data(), b.offsets.data() + s, b.weights.data(),
                        parts.data() + s * 8);
  EXPECT_TRUE(SameBits(whole, parts));
}

TEST(EmbeddingTest, TheBiasIsAddedToAllSamples) {
  SplitMix random(8);
  for (const std::size_t samples : {0, 1, 9, 1000}) {
    const std::vector<float> rows = RandomFloats(5, random), grad_out = RandomFloats(samples, random);
    const std::vector<float> before = RandomFloats(samples, random), grad_before = RandomFloats(5, random);
    const std::uint32_t row = 3;
    std::vector<float> out = before, grad_rows = grad_before;
    BiasForward(samples, rows.data(), &row, out.data());
    BiasBackward(samples, grad_out.data(), &row, grad_rows.data());
    double sum = 0;
    for (std::size_t s = 0; s < samples; ++s) {
      ASSERT_EQ(out[s], before[s] + rows[row]);
      sum += double(grad_out[s]);
    }
    for (std::size_t r = 0; r < 5; ++r) EXPECT_NEAR(grad_rows[r], grad_before[r] + (r == row ? sum : 0), 1e-5);
  }
}

TEST(EmbeddingTest, ConcatForwardAndBackward) {
  SplitMix random(4);
  for (const std::uint32_t dim : kWidths)
    for (const std::uint32_t fields : {0u, 1u, 26u})
      for (const std::size_t samples : {0, 1, 30}) {
        const std::size_t stride = std::size_t{fields} * dim + 5;
        const std::vector<float> rows = RandomFloats(std::size_t{kRows} * dim, random);
        const std::vector<std::uint32_t> inverse = RandomIndices(samples * fields, kRows, random);
        std::vector<float> out(samples * stride, 7.0f);
        EmbeddingConcatForward(samples, fields, dim, rows.data(), inverse.data(), out.data(), stride);
        std::vector<float> grad = RandomFloats(rows.size(), random);
        std::vector<double> expected(grad.begin(), grad.end());
        for (std::size_t s = 0; s < samples; ++s)
          for (std::size_t at = 0; at < stride; ++at) {
            const float actual = out[s * stride + at];
            if (at >= std::size_t{fields} * dim) {
              ASSERT_EQ(actual, 7.0f) << "the room of other features is not touched";
              continue;
            }
            const std::size_t cell = inverse[s * fields + at / dim] * dim + at % dim;
            ASSERT_EQ(actual, rows[cell]);
            expected[cell] += double(actual);
          }
        EmbeddingConcatBackward(samples, fields, dim, out.data(), stride, inverse.data(), grad.data());
        ExpectNear(grad, expected, 1e-5);
      }
}

TEST(EmbeddingTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(5);
  for (const std::uint32_t dim : {3u, 16u}) {
    const Bags b = RandomBags(dim, 100, random);
    const auto compute = [&](std::size_t shift) {
      Shifted rows(b.rows, shift), grad_out(b.grad_out, 2 * shift);
      std::vector<float> out = Poisoned(100 * dim), grad(b.rows.size(), 0.0f);
      EmbeddingBagForward(100, dim, rows.data(), b.inverse.data(), b.offsets.data(), b.weights.data(), out.data());
      EmbeddingBagBackward(100, dim, grad_out.data(), b.inverse.data(), b.offsets.data(), b.weights.data(),
                           grad.data());
      out.insert(out.end(), grad.begin(), grad.end());
      return out;
    };
    for (const std::size_t shift : {1, 5}) EXPECT_TRUE(SameBits(compute(0), compute(shift)));
    ExpectSameBitsOnEveryTarget([&] { return compute(1); });
  }
}

}  // namespace
}  // namespace tarn::kernels

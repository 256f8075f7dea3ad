// Shows that the factorization machine's term is the sum over all pairs, that its gradient is that of finite
// differences, and that the bits are the same on every instruction set.
#include "kernels/fm.h"

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr std::uint32_t kRows = 17;

struct Batch {
  std::uint32_t dim;
  std::size_t samples;
  std::vector<float> rows, weights, grad_out;
  std::vector<std::uint32_t> offsets, inverse;
};

Batch RandomBatch(std::uint32_t dim, std::size_t samples, SplitMix& random) {
  Batch b{.dim = dim, .samples = samples, .offsets = RandomOffsets(samples, 8, random)};
  b.rows = RandomFloats(std::size_t{kRows} * dim, random);
  b.inverse = RandomIndices(b.offsets.back(), kRows, random);
  b.weights = RandomFloats(b.offsets.back(), random);
  b.grad_out = RandomFloats(samples, random);
  return b;
}

// The definition: every pair once.
std::vector<double> Pairs64(const Batch& b, bool weighted) {
  std::vector<double> out(b.samples, 0.0);
  const auto value = [&](std::size_t o, std::uint32_t j) {
    return (weighted ? double(b.weights[o]) : 1.0) * double(b.rows[b.inverse[o] * b.dim + j]);
  };
  for (std::size_t s = 0; s < b.samples; ++s)
    for (std::size_t o = b.offsets[s]; o < b.offsets[s + 1]; ++o)
      for (std::size_t p = o + 1; p < b.offsets[s + 1]; ++p)
        for (std::uint32_t j = 0; j < b.dim; ++j) out[s] += value(o, j) * value(p, j);
  return out;
}

TEST(FmTest, ForwardIsTheSumOverPairs) {
  SplitMix random(1);
  for (const std::uint32_t dim : {1u, 4u, 7u, 8u, 16u, 33u, 4096u})
    for (const std::size_t samples : {0, 1, 40})
      for (const bool weighted : {false, true}) {
        const Batch b = RandomBatch(dim, samples, random);
        std::vector<float> out = Poisoned(samples), sums = Poisoned(samples * dim);
        FmForward(samples, dim, b.rows.data(), b.inverse.data(), b.offsets.data(),
                  weighted ? b.weights.data() : nullptr, out.data(), sums.data());
        ExpectNear(out, Pairs64(b, weighted), 1e-5, std::sqrt(double(dim)));
      }
}

TEST(FmTest, BackwardIsTheGradientOfFiniteDifferences) {
  SplitMix random(2);
  for (const std::uint32_t dim : {1u, 5u, 8u})
    for (const bool weighted : {false, true}) {
      Batch b = RandomBatch(dim, 12, random);
      const float* weights = weighted ? b.weights.data() : nullptr;
      std::vector<float> out = Poisoned(12), sums = Poisoned(12 * dim), grad(b.rows.size(), 0.25f);
      FmForward(12, dim, b.rows.data(), b.inverse.data(), b.offsets.data(), weights, out.data(), sums.data());
      FmBackward(12, dim, b.rows.data(), b.inverse.data(), b.offsets.data(), weights, b.grad_out.data(), sums.data(),
                 grad.data());
      const auto value = [&] {
        double sum = 0;
        const std::vector<double> y = Pairs64(b, weighted);
        for (std::size_t s = 0; s < y.size(); ++s) sum += y[s] * double(b.grad_out[s]);
        return sum;
      };
      // A row that a sample contains twice is paired with itself; its gradient by occurrence is still the derivative.
      for (std::size_t i = 0; i < b.rows.size(); ++i) {
        const float kept = b.rows[i];
        b.rows[i] = kept + 0x1p-10f;
        const double up = value();
        b.rows[i] = kept - 0x1p-10f;
        const double down = value();
        b.rows[i] = kept;
        const double slope = (up - down) / (double(kept + 0x1p-10f) - double(kept - 0x1p-10f));
        EXPECT_NEAR(slope + 0.25, grad[i], 2e-5 * (1 + std::abs(slope)));
      }
    }
}

TEST(FmTest, WithoutAnInverseOccurrencesAreRows) {
  SplitMix random(3);
  const Batch b = RandomBatch(8, 30, random);
  const std::size_t occurrences = b.inverse.size();
  std::vector<float> expanded;
  for (const std::uint32_t u : b.inverse)
    expanded.insert(expanded.end(), b.rows.begin() + u * 8, b.rows.begin() + (u + 1) * 8);
  std::vector<float> out = Poisoned(30), sums = Poisoned(240), out2 = Poisoned(30), sums2 = Poisoned(240);
  FmForward(30, 8, b.rows.data(), b.inverse.data(), b.offsets.data(), nullptr, out.data(), sums.data());
  FmForward(30, 8, expanded.data(), nullptr, b.offsets.data(), nullptr, out2.data(), sums2.data());
  EXPECT_TRUE(SameBits(out, out2));
  EXPECT_TRUE(SameBits(sums, sums2));
  std::vector<float> grad(b.rows.size(), 0.0f), grad2(occurrences * 8, 0.0f);
  FmBackward(30, 8, b.rows.data(), b.inverse.data(), b.offsets.data(), nullptr, b.grad_out.data(), sums.data(),
             grad.data());
  FmBackward(30, 8, expanded.data(), nullptr, b.offsets.data(), nullptr, b.grad_out.data(), sums.data(), grad2.data());
  std::vector<float> reduced(b.rows.size(), 0.0f);
  for (std::size_t o = 0; o < occurrences; ++o)
    for (std::size_t j = 0; j < 8; ++j) reduced[b.inverse[o] * 8 + j] += grad2[o * 8 + j];
  EXPECT_TRUE(SameBits(grad, reduced));
}

TEST(FmTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(4);
  for (const std::uint32_t dim : {5u, 16u}) {
    const Batch b = RandomBatch(dim, 100, random);
    const auto compute = [&](std::size_t shift) {
      Shifted rows(b.rows, shift);
      std::vector<float> out = Poisoned(100), sums = Poisoned(100 * dim), grad(b.rows.size(), 0.0f);
      FmForward(100, dim, rows.data(), b.inverse.data(), b.offsets.data(), b.weights.data(), out.data(), sums.data());
      FmBackward(100, dim, rows.data(), b.inverse.data(), b.offsets.data(), b.weights.data(), b.grad_out.data(),
                 sums.data(), grad.data());
      out.insert(out.end(), grad.begin(), grad.end());
      return out;
    };
    for (const std::size_t shift : {1, 7}) EXPECT_TRUE(SameBits(compute(0), compute(shift)));
    ExpectSameBitsOnEveryTarget([&] { return compute(3); });
  }
}

}  // namespace
}  // namespace tarn::kernels

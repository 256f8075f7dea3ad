// Shows that the interaction is the first vector followed by the dot product of every pair, that its gradient agrees
// with finite differences, and that the bits are those of plain sums in the order of their terms, on every instruction
// set.
#include "kernels/interaction.h"

#include <array>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

std::vector<double> Forward64(std::size_t samples, std::size_t vectors, std::size_t dim, const std::vector<float>& in) {
  std::vector<double> out;
  for (std::size_t s = 0; s < samples; ++s) {
    const float* x = in.data() + s * vectors * dim;
    for (std::size_t d = 0; d < dim; ++d) out.push_back(double(x[d]));
    for (std::size_t i = 0; i < vectors; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        double dot = 0;
        for (std::size_t d = 0; d < dim; ++d) dot += double(x[i * dim + d]) * double(x[j * dim + d]);
        out.push_back(dot);
      }
  }
  return out;
}

TEST(InteractionTest, ForwardIsEveryDotProduct) {
  SplitMix random(1);
  for (const std::uint32_t vectors : {1u, 2u, 9u, 16u, 17u, 27u, 65u})
    for (const std::uint32_t dim : {1u, 3u, 16u, 19u, 64u})
      for (const std::size_t samples : {0, 1, 5}) {
        const std::vector<float> in = RandomFloats(samples * vectors * dim, random);
        std::vector<float> out = Poisoned(samples * InteractionWidth(vectors, dim));
        InteractionForward(samples, vectors, dim, in.data(), out.data());
        ExpectNear(out, Forward64(samples, vectors, dim, in), 1e-5);
      }
}

TEST(InteractionTest, BackwardIsTheGradientOfFiniteDifferences) {
  SplitMix random(2);
  for (const std::uint32_t vectors : {1u, 2u, 5u, 18u})
    for (const std::uint32_t dim : {1u, 3u, 17u}) {
      constexpr std::size_t kSamples = 2;
      std::vector<float> in = RandomFloats(kSamples * vectors * dim, random);
      const std::vector<float> grad_out = RandomFloats(kSamples * InteractionWidth(vectors, dim), random);
      std::vector<float> grad = Poisoned(in.size());
      InteractionBackward(kSamples, vectors, dim, in.data(), grad_out.data(), grad.data());
      const auto value = [&] {
        double sum = 0;
        const std::vector<double> y = Forward64(kSamples, vectors, dim, in);
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * double(grad_out[i]);
        return sum;
      };
      for (std::size_t i = 0; i < in.size(); ++i) {
        const float kept = in[i];
        in[i] = kept + 0x1p-8f;
        const double up = value(), high = double(in[i]);
        in[i] = kept - 0x1p-8f;
        const double down = value(), low = double(in[i]);
        in[i] = kept;
        EXPECT_NEAR((up - down) / (high - low), grad[i], 1e-5);
      }
    }
}

// One sum at a time, in floats; backward over the vectors in their order, the vector itself with a pair of 0.
std::vector<float> PlainForward(std::size_t samples, std::size_t vectors, std::size_t dim,
                                const std::vector<float>& in) {
  std::vector<float> out;
  for (std::size_t s = 0; s < samples; ++s) {
    const float* x = in.data() + s * vectors * dim;
    out.insert(out.end(), x, x + dim);
    for (std::size_t i = 0; i < vectors; ++i)
      for (std::size_t j = 0; j < i; ++j) {
        float dot = 0;
        for (std::size_t d = 0; d < dim; ++d) dot += x[i * dim + d] * x[j * dim + d];
        out.push_back(dot);
      }
  }
  return out;
}

std::vector<float> PlainBackward(std::size_t samples, std::size_t vectors, std::size_t dim,
                                 const std::vector<float>& in, const std::vector<float>& grad_out) {
  std::vector<float> grad(in.size());
  const std::size_t width = grad_out.size() / samples;
  for (std::size_t s = 0; s < samples; ++s) {
    const float *x = in.data() + s * vectors * dim, *first = grad_out.data() + s * width, *pairs = first + dim;
    for (std::size_t i = 0; i < vectors; ++i)
      for (std::size_t d = 0; d < dim; ++d) {
        float sum = 0;
        for (std::size_t j = 0; j < vectors; ++j) {
          const std::size_t high = std::max(i, j), low = std::min(i, j);
          sum += (i == j ? 0.0f : pairs[high * (high - 1) / 2 + low]) * x[j * dim + d];
        }
        grad[(s * vectors + i) * dim + d] = i == 0 ? first[d] + sum : sum;
      }
  }
  return grad;
}

void ExpectPlainBits(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, SplitMix& random) {
  const std::vector<float> in = RandomFloats(samples * vectors * dim, random);
  const std::vector<float> grad_out = RandomFloats(samples * InteractionWidth(vectors, dim), random);
  std::vector<float> out = Poisoned(grad_out.size()), grad = Poisoned(in.size());
  InteractionForward(samples, vectors, dim, in.data(), out.data());
  InteractionBackward(samples, vectors, dim, in.data(), grad_out.data(), grad.data());
  EXPECT_TRUE(SameBits(out, PlainForward(samples, vectors, dim, in))) << vectors << " x " << dim;
  EXPECT_TRUE(SameBits(grad, PlainBackward(samples, vectors, dim, in, grad_out))) << vectors << " x " << dim;
}

// Every number of rows of a tile, with one and several blocks of lanes, and with partial blocks.
TEST(InteractionTest, BitsEqualThoseOfPlainSums) {
  SplitMix random(4);
  ForEachTarget([&](const char* name) {
    SCOPED_TRACE(name);
    for (const std::uint32_t vectors : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 17u, 18u, 27u, 33u, 50u, 67u})
      for (const std::uint32_t dim : {1u, 8u, 15u, 16u, 17u, 32u, 48u, 64u}) ExpectPlainBits(2, vectors, dim, random);
  });
}

TEST(InteractionTest, ManySamples) {
  SplitMix random(5);
  ExpectPlainBits(70'001, 3, 8, random);
}

TEST(InteractionDeathTest, AShapeBeyondTheBoundsIsRefused) {
  EXPECT_TRUE(IsInteraction(kInteractionVectorsMax, 4));
  InteractionForward(0, kInteractionVectorsMax, 4, nullptr, nullptr);
  constexpr std::array<std::uint32_t, 2> kShapes[] = {
      {kInteractionVectorsMax + 1, 2}, {kInteractionVectorsMax, 5}, {0, 4}, {4, 0}};
  for (const auto& [vectors, dim] : kShapes) {
    EXPECT_DEATH(InteractionForward(0, vectors, dim, nullptr, nullptr), "within the bounds of an interaction");
    EXPECT_DEATH(InteractionBackward(0, vectors, dim, nullptr, nullptr, nullptr), "within the bounds");
  }
}

TEST(InteractionTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(3);
  constexpr std::uint32_t kVectors = 27, kDim = 18;
  const std::vector<float> in = RandomFloats(10 * kVectors * kDim, random);
  const std::vector<float> grad_out = RandomFloats(10 * InteractionWidth(kVectors, kDim), random);
  const auto compute = [&](std::size_t shift) {
    Shifted shifted(in, shift);
    std::vector<float> out = Poisoned(grad_out.size()), grad = Poisoned(in.size());
    InteractionForward(10, kVectors, kDim, shifted.data(), out.data());
    InteractionBackward(10, kVectors, kDim, shifted.data(), grad_out.data(), grad.data());
    out.insert(out.end(), grad.begin(), grad.end());
    return out;
  };
  for (const std::size_t shift : {1, 7}) EXPECT_TRUE(SameBits(compute(0), compute(shift)));
  ExpectSameBitsOnEveryTarget([&] { return compute(3); });
}

}  // namespace
}  // namespace tarn::kernels

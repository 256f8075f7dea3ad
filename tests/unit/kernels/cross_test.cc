// Shows that the cross layer is its formula in float64, that its gradient is that of finite differences, and that the
// bits are the same on every instruction set and alignment.
#include "kernels/cross.h"

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

struct Case {
  std::vector<float> x0, y, x, grad_out;
};

Case RandomCase(std::size_t n, SplitMix& random) {
  return {RandomFloats(n, random, -2, 2), RandomFloats(n, random, -2, 2), RandomFloats(n, random, -2, 2),
          RandomFloats(n, random)};
}

TEST(CrossTest, ForwardIsTheFormula) {
  SplitMix random(1);
  for (const std::size_t n : {0, 1, 7, 8, 33, 5000}) {
    const Case c = RandomCase(n, random);
    std::vector<float> out = Poisoned(n);
    CrossForward(n, c.x0.data(), c.y.data(), c.x.data(), out.data());
    std::vector<double> expected(n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = double(c.x0[i]) * double(c.y[i]) + double(c.x[i]);
    ExpectNear(out, expected, 3e-7, 4);
  }
}

TEST(CrossTest, BackwardIsItsDerivative) {
  SplitMix random(2);
  for (const std::size_t n : {0, 1, 9, 64, 4097}) {
    const Case c = RandomCase(n, random);
    std::vector<float> grad_y = Poisoned(n), grad_x0(n, 0.5f);
    CrossBackward(n, c.x0.data(), c.y.data(), c.grad_out.data(), grad_y.data(), grad_x0.data());
    // The formula is linear in y and in x0: a difference of any size is exact.
    std::vector<double> by_y(n), by_x0(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto loss = [&](double x0, double y) { return double(c.grad_out[i]) * (x0 * y + double(c.x[i])); };
      const double x0 = double(c.x0[i]), y = double(c.y[i]);
      by_y[i] = (loss(x0, y + 1) - loss(x0, y - 1)) / 2;
      by_x0[i] = 0.5 + (loss(x0 + 1, y) - loss(x0 - 1, y)) / 2;
    }
    ExpectNear(grad_y, by_y, 3e-7, 4);
    ExpectNear(grad_x0, by_x0, 3e-7, 4);
  }
}

TEST(CrossTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(3);
  const std::size_t n = 1003;
  const Case c = RandomCase(n, random);
  const auto compute = [&](std::size_t shift) {
    Shifted x0(c.x0, shift), y(c.y, shift + 3), grad(c.grad_out, shift + 5);
    std::vector<float> out = Poisoned(n), grad_y = Poisoned(n), grad_x0(n, 0.25f);
    CrossForward(n, x0.data(), y.data(), c.x.data(), out.data());
    CrossBackward(n, x0.data(), y.data(), grad.data(), grad_y.data(), grad_x0.data());
    out.insert(out.end(), grad_y.begin(), grad_y.end());
    out.insert(out.end(), grad_x0.begin(), grad_x0.end());
    return out;
  };
  for (const std::size_t shift : {1, 7}) EXPECT_TRUE(SameBits(compute(0), compute(shift)));
  ExpectSameBitsOnEveryTarget([&] { return compute(3); });
}

}  // namespace
}  // namespace tarn::kernels

// Shows that matrix products and the linear layer agree with float64 for odd and empty shapes, ignore what an output
// held before, have the gradients of finite differences, and give the same bits again, at other alignments and with
// other numbers of OpenMP threads.
#include "kernels/gemm.h"

#include <cpuid.h>

#include "core/half.h"
#include "kernels/cpu/fused_layer.h"
#include "kernels/cpu/gemm_bf16.h"
#include "tests/unit/kernels/kernel_test_util.h"

extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace tarn::kernels {
namespace {

struct Case {
  std::size_t m, n, k;
};
constexpr Case kCases[] = {{1, 1, 1}, {3, 5, 7}, {64, 1, 33}, {1, 64, 100}, {17, 31, 256}, {128, 65, 33},
                           {0, 4, 4}, {4, 0, 4}, {4, 4, 0},   {2, 3, 1000}, {255, 257, 63}};

TEST(GemmTest, AgreesWithFloat64) {
  SplitMix random(1);
  for (const auto& [m, n, k] : kCases)
    for (const auto ta : {Transpose::kNo, Transpose::kYes})
      for (const auto tb : {Transpose::kNo, Transpose::kYes})
        for (const float beta : {0.0f, 1.0f, -0.5f}) {
          const std::size_t a_stride = (ta == Transpose::kYes ? m : k) + 2;
          const std::size_t b_stride = (tb == Transpose::kYes ? k : n) + 1;
          const std::size_t c_stride = n + 3;
          const std::vector<float> a = RandomFloats((ta == Transpose::kYes ? k : m) * a_stride, random);
          const std::vector<float> b = RandomFloats((tb == Transpose::kYes ? n : k) * b_stride, random);
          std::vector<float> c = beta == 0.0f ? Poisoned(m * c_stride) : RandomFloats(m * c_stride, random);
          const std::vector<float> before = c;
          Gemm({m, n, k}, 0.75f, {a.data(), a_stride, ta}, {b.data(), b_stride, tb}, beta, c.data(), c_stride);
          for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < c_stride; ++j) {
              const float actual = c[i * c_stride + j];
              if (j >= n) {  // what lies between the rows stays
                ASSERT_TRUE(SameBits({actual}, {before[i * c_stride + j]}));
                continue;
              }
              double expected = beta == 0.0f ? 0.0 : double(beta) * double(before[i * c_stride + j]);
              for (std::size_t l = 0; l < k; ++l)
                expected += 0.75 * double(ta == Transpose::kYes ? a[l * a_stride + i] : a[i * a_stride + l]) *
                            double(tb == Transpose::kYes ? b[j * b_stride + l] : b[l * b_stride + j]);
              ASSERT_NEAR(actual, expected, 1e-6 * (2 + std::sqrt(double(k)) * 3)) << m << " " << n << " " << k;
            }
        }
}

TEST(GemmTest, BitsDoNotDependOnAlignmentOrThreads) {
  SplitMix random(2);
  const int threads = omp_get_max_threads();
  for (const auto& [m, n, k] : {Case{256, 64, 429}, Case{33, 17, 1000}, Case{700, 300, 50}}) {
    const std::vector<float> a = RandomFloats(m * k, random), b = RandomFloats(n * k, random);
    const auto compute = [&](std::size_t shift) {
      Shifted sa(a, shift), sb(b, 2 * shift), sc(Poisoned(m * n), 3 * shift);
      Gemm({m, n, k}, 1.0f, {sa.data(), k}, {sb.data(), k, Transpose::kYes}, 0.0f, sc.data(), n);
      return sc.values();
    };
    const std::vector<float> first = compute(0);
    for (const std::size_t shift : {0, 1, 3, 4}) EXPECT_TRUE(SameBits(first, compute(shift))) << shift;
    for (const int count : {1, 2, 7}) {
      omp_set_num_threads(count);
      EXPECT_TRUE(SameBits(first, compute(0))) << count << " threads";
      EXPECT_EQ(omp_get_max_threads(), count) << "the caller's setting is put back";
    }
    omp_set_num_threads(threads);
  }
}

std::vector<float> Rounded(std::vector<float> values) {
  for (float& v : values) v = FloatFromBf16(Bf16FromFloat(v));
  return values;
}

// Products of two bf16 numbers are exact in fp32, so only sums are rounded. Tests both implementations, whichever this
// processor uses.
TEST(GemmTest, Bf16RoundsTheFactorsOnly) {
  SplitMix random(11);
  for (const auto& [m, n, k] : kCases)
    for (const auto ta : {Transpose::kNo, Transpose::kYes})
      for (const auto tb : {Transpose::kNo, Transpose::kYes}) {
        const std::size_t a_stride = (ta == Transpose::kYes ? m : k) + 2, b_stride = (tb == Transpose::kYes ? k : n);
        const std::size_t c_stride = n + 3;
        const std::vector<float> a = RandomFloats((ta == Transpose::kYes ? k : m) * a_stride, random);
        const std::vector<float> b = RandomFloats((tb == Transpose::kYes ? n : k) * b_stride, random);
        const std::vector<float> ra = Rounded(a), rb = Rounded(b);
        const MatrixIn left{a.data(), a_stride, ta}, right{b.data(), b_stride, tb};
        std::vector<std::vector<float>> results(3, Poisoned(m * c_stride));
        GemmBf16({m, n, k}, left, right, results[0].data(), c_stride);
        GemmBf16Emulated({m, n, k}, left, right, results[1].data(), c_stride);
        const bool empty = m == 0 || n == 0 || k == 0;
        if (empty || !GemmBf16Native({m, n, k}, left, right, results[2].data(), c_stride)) results.pop_back();
        if (!HasBf16Tiles()) {
          EXPECT_TRUE(SameBits(results[0], results[1])) << "without AMX by fp32";
        }
        for (const std::vector<float>& c : results)
          for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < c_stride; ++j) {
              if (j >= n) {  // what lies between the rows stays
                ASSERT_TRUE(std::isnan(c[i * c_stride + j]));
                continue;
              }
              double expected = 0;
              for (std::size_t l = 0; l < k; ++l)
                expected += double(ta == Transpose::kYes ? ra[l * a_stride + i] : ra[i * a_stride + l]) *
                            double(tb == Transpose::kYes ? rb[j * b_stride + l] : rb[l * b_stride + j]);
              ASSERT_NEAR(c[i * c_stride + j], expected, 1e-6 * (2 + std::sqrt(double(k)) * 3))
                  << m << " " << n << " " << k;
            }
      }
}

// The processor determines the implementation, because bits must not change from run to run.
TEST(GemmTest, OnlyAmxHasTiles) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool listed = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bit_AMX_BF16) != 0;
  EXPECT_TRUE(listed || !HasBf16Tiles());
}

// More shapes than are cached, in an order that repeats the first ones.
TEST(GemmTest, Bf16OfManyShapes) {
  const std::vector<float> ones(400 * 400, 1.0f);
  for (int round = 0; round < 2; ++round)
    for (std::size_t n = 1; n <= 300; ++n) {
      std::vector<float> c = Poisoned(2 * n);
      if (!GemmBf16Native({2, n, 3}, {ones.data(), 3}, {ones.data(), n}, c.data(), n))
        GTEST_SKIP() << "oneDNN has no bf16 products for this processor";
      for (const float v : c) ASSERT_EQ(v, 3.0f);
    }
}

struct Layer {
  LinearShape shape;
  bool relu;
  std::vector<float> x, w, bias, dy;
};

Layer RandomLayer(const LinearShape& shape, bool relu, SplitMix& random) {
  Layer layer{shape,
              relu,
              RandomFloats(shape.rows * shape.in, random),
              RandomFloats(shape.out * shape.in, random),
              RandomFloats(shape.out, random),
              RandomFloats(shape.rows * shape.out, random)};
  if (shape.precision == Precision::kBf16)
    for (auto* values : {&layer.x, &layer.w, &layer.dy}) *values = Rounded(*values);
  return layer;
}

std::vector<double> Forward64(const Layer& l) {
  std::vector<double> y;
  for (std::size_t i = 0; i < l.shape.rows; ++i)
    for (std::size_t o = 0; o < l.shape.out; ++o) {
      double sum = double(l.bias[o]);
      for (std::size_t k = 0; k < l.shape.in; ++k)
        sum += double(l.x[i * l.shape.in + k]) * double(l.w[o * l.shape.in + k]);
      y.push_back(l.relu && sum < 0 ? 0 : sum);
    }
  return y;
}

// In bf16 nothing is lost of what is bf16 already.
constexpr LinearShape kShapes[] = {{1, 1, 1},
                                   {5, 3, 7},
                                   {64, 33, 1},
                                   {33, 100, 17},
                                   {kFusedRowsMin, 13, kFusedOutMin},
                                   {kFusedRowsMin + 1, 70, 33},
                                   {0, 3, 4},
                                   {kFusedRowsMin, 0, 12},
                                   {kFusedRowsMin, 7, 0},
                                   {3, 0, 4},
                                   {0, 3, 4, Precision::kBf16},
                                   {3, 0, 4, Precision::kBf16},
                                   {5, 3, 7, Precision::kBf16},
                                   {33, 100, 17, Precision::kBf16}};

TEST(LinearTest, ForwardAgreesWithFloat64) {
  SplitMix random(3);
  for (const LinearShape& shape : kShapes)
    for (const bool relu : {false, true}) {
      const Layer l = RandomLayer(shape, relu, random);
      std::vector<float> y = Poisoned(shape.rows * shape.out);
      LinearForward(shape, l.x.data(), l.w.data(), l.bias.data(), relu, y.data());
      ExpectNear(y, Forward64(l), 2e-5);
      Layer without = l;
      without.bias.assign(shape.out, 0.0f);
      LinearForward(shape, l.x.data(), l.w.data(), nullptr, relu, y.data());
      ExpectNear(y, Forward64(without), 2e-5);
    }
}

// LinearForward uses the fused layer where it is faster.
TEST(LinearTest, TheFusedLayerAgreesWithFloat64) {
  SplitMix random(13);
  for (const LinearShape& shape : {LinearShape{1, 1, 1}, LinearShape{5, 3, 7}, LinearShape{65, 129, 31},
                                   LinearShape{700, 13, 100}, LinearShape{3, 3, 7}, LinearShape{65, 129, 31}})
    for (const bool relu : {false, true}) {
      const Layer l = RandomLayer(shape, relu, random);
      std::vector<float> y = Poisoned(shape.rows * shape.out);
      if (!FusedForward(shape, l.x.data(), l.w.data(), l.bias.data(), relu, y.data()))
        GTEST_SKIP() << "oneDNN has none";
      ExpectNear(y, Forward64(l), 2e-5);
      Layer without = l;
      without.bias.assign(shape.out, 0.0f);
      y = Poisoned(y.size());
      ASSERT_TRUE(FusedForward(shape, l.x.data(), l.w.data(), nullptr, relu, y.data()));
      ExpectNear(y, Forward64(without), 2e-5);
    }
}

// A NaN gradient must not vanish in a layer of many rows if it stays in one of few rows.
TEST(LinearTest, ANanIsTheSameInFewRowsAndMany) {
  for (const std::size_t rows : {std::size_t{4}, kFusedRowsMin}) {
    const std::vector<float> x(rows * 3, std::nanf("")), w(3 * kFusedOutMin, 1.0f), bias(kFusedOutMin, 0.0f);
    for (const bool relu : {false, true}) {
      std::vector<float> y = Poisoned(rows * kFusedOutMin);
      LinearForward({rows, 3, kFusedOutMin}, x.data(), w.data(), bias.data(), relu, y.data());
      for (const float v : y) {
        if (relu)
          ASSERT_EQ(v, 0.0f) << rows;
        else
          ASSERT_TRUE(std::isnan(v)) << rows;
      }
    }
  }
}

TEST(LinearTest, BackwardAgreesWithFloat64) {
  SplitMix random(4);
  for (const LinearShape& shape : kShapes)
    for (const bool relu : {false, true}) {
      const Layer l = RandomLayer(shape, relu, random);
      const auto [rows, in, out, precision] = shape;
      std::vector<float> y = Poisoned(rows * out), dy = l.dy;
      LinearForward(shape, l.x.data(), l.w.data(), l.bias.data(), relu, y.data());
      std::vector<float> dx = Poisoned(rows * in), dw = Poisoned(out * in), dbias = Poisoned(out);
      LinearBackward(shape, l.x.data(), l.w.data(), y.data(), relu, dy.data(), dx.data(), dw.data(), dbias.data());
      std::vector<double> ex(rows * in), ew(out * in), eb(out);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t o = 0; o < out; ++o) {
          const double g = relu && y[i * out + o] == 0 ? 0.0 : double(l.dy[i * out + o]);
          ASSERT_EQ(double(dy[i * out + o]), g);
          eb[o] += g;
          for (std::size_t k = 0; k < in; ++k) {
            ex[i * in + k] += g * double(l.w[o * in + k]);
            ew[o * in + k] += g * double(l.x[i * in + k]);
          }
        }
      ExpectNear(dx, ex, 2e-5);
      ExpectNear(dw, ew, 2e-5);
      ExpectNear(dbias, eb, 2e-5);
      dy = l.dy;
      std::vector<float> again = Poisoned(out * in);
      LinearBackward(shape, l.x.data(), l.w.data(), y.data(), relu, dy.data(), nullptr, again.data(), nullptr);
      EXPECT_TRUE(SameBits(dw, again)) << "without dx and dbias";
    }
}

// The factors are not rounded to bf16 yet.
TEST(LinearTest, BothImplementationsOfBf16GradientsAgree) {
  SplitMix random(12);
  for (const LinearShape& shape : {LinearShape{5, 3, 7}, LinearShape{300, 100, 17}, LinearShape{64, 1, 33}}) {
    const auto [rows, in, out, precision] = shape;
    const Layer l = RandomLayer(shape, false, random);
    std::vector<float> dw = Poisoned(out * in), dx = Poisoned(rows * in), dw_alone = dw, dx_alone = dx;
    GradientsBf16Emulated(shape, l.x.data(), l.w.data(), l.dy.data(), dx.data(), dw.data());
    GemmBf16Emulated({out, in, rows}, {l.dy.data(), out, Transpose::kYes}, {l.x.data(), in}, dw_alone.data(), in);
    GemmBf16Emulated({rows, in, out}, {l.dy.data(), out}, {l.w.data(), in}, dx_alone.data(), in);
    EXPECT_TRUE(SameBits(dw, dw_alone) && SameBits(dx, dx_alone)) << "rounded for each product or once";
    std::vector<float> dw_native = Poisoned(dw.size()), dx_native = Poisoned(dx.size());
    if (!GradientsBf16Native(shape, l.x.data(), l.w.data(), l.dy.data(), dx_native.data(), dw_native.data())) continue;
    ExpectNear(dw_native, {dw.begin(), dw.end()}, 2e-5);
    ExpectNear(dx_native, {dx.begin(), dx.end()}, 2e-5);
  }
}

// d<dy, y> / d(parameter), by central differences of the float64 forward pass.
TEST(LinearTest, GradientsAreThoseOfFiniteDifferences) {
  SplitMix random(5);
  Layer l = RandomLayer({6, 5, 4}, true, random);
  std::vector<float> y = Poisoned(24), dy = l.dy, dx = Poisoned(30), dw = Poisoned(20), dbias = Poisoned(4);
  LinearForward(l.shape, l.x.data(), l.w.data(), l.bias.data(), true, y.data());
  LinearBackward(l.shape, l.x.data(), l.w.data(), y.data(), true, dy.data(), dx.data(), dw.data(), dbias.data());
  const auto value = [&] {
    double sum = 0;
    const std::vector<double> out = Forward64(l);
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * double(l.dy[i]);
    return sum;
  };
  const auto check = [&](std::vector<float>& parameters, const std::vector<float>& gradient) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float kept = parameters[i];
      parameters[i] = kept + 0x1p-12f;
      const double up = value();
      parameters[i] = kept - 0x1p-12f;
      const double down = value();
      parameters[i] = kept;
      EXPECT_NEAR((up - down) / 0x1p-11, gradient[i], 1e-3);
    }
  };
  check(l.x, dx);
  check(l.w, dw);
  check(l.bias, dbias);
}

}  // namespace
}  // namespace tarn::kernels

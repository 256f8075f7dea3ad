// Shows that matrix products on a GPU agree with float64, for every precision, transposition, epilogue and kind of
// element, at odd, empty and larger shapes, whatever the outputs contained before; that memory between rows is not
// changed; that a separate pass gives the results of a fused epilogue; that layers have the gradients of the CPU's; and
// that measured algorithms are used again. Skipped, with the reason, if there is no GPU.
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "kernels/device_gemm.h"
#include "kernels/gemm.h"
#include "kernels/gemm_algorithms.h"
#include "tests/unit/kernels/gpu_test_util.h"
#include "tests/unit/kernels/scalar_half.h"

namespace tarn::kernels {
namespace {

using Halves = std::vector<std::uint16_t>;

constexpr GemmShape kShapes[] = {{1, 1, 1}, {3, 5, 7}, {64, 1, 33}, {1, 64, 100}, {17, 31, 256},  {128, 65, 33},
                                 {0, 4, 4}, {4, 0, 4}, {4, 4, 0},   {2, 3, 1000}, {300, 256, 128}};

Halves ToHalves(const std::vector<float>& values, Element element) {
  Halves halves;
  for (const float v : values) halves.push_back(element == Element::kBf16 ? Bf16FromFloat(v) : Fp16FromFloat(v));
  return halves;
}

std::vector<float> FromHalves(const Halves& halves, Element element) {
  std::vector<float> values;
  for (const std::uint16_t h : halves)
    values.push_back(element == Element::kBf16 ? FloatFromBf16(h) : FloatFromFp16(h));
  return values;
}

// The values, rounded to the element.
std::vector<float> Rounded(const std::vector<float>& values, Element element) {
  return element == Element::kFp32 ? values : FromHalves(ToHalves(values, element), element);
}

// The largest rounding error of a value of 1.
double Ulp(Element element) {
  if (element == Element::kFp32) return 0x1p-24;
  return element == Element::kBf16 ? 0x1p-8 : 0x1p-11;
}

Element ElementOf(Precision precision) {
  if (precision == Precision::kBf16) return Element::kBf16;
  return precision == Precision::kFp16 ? Element::kFp16 : Element::kFp32;
}

// A bound on the error of a sum of k products of numbers in [-1, 1): rounding of the sums and, in tf32, of the factors.
double Tolerance(std::size_t k, Precision precision) {
  const double terms = 2 + 3 * std::sqrt(double(k));
  return (precision == Precision::kTf32 ? 0x1p-10 : 1e-6) * terms;
}

// Bit (i, j) of the mask of a matrix of n columns.
bool BitOf(const std::vector<std::uint32_t>& mask, std::size_t n, std::size_t i, std::size_t j) {
  return (mask[i * ReluMaskStride(n) + j / 32] >> j % 32 & 1) != 0;
}

class GpuGemmTest : public GpuFixture {
 protected:
  // Values in the GPU's memory, as elements.
  DeviceBuffer UploadAs(const std::vector<float>& values, Element element) {
    return element == Element::kFp32 ? Upload(values) : Upload(ToHalves(values, element));
  }
  std::vector<float> DownloadAs(DeviceBuffer& buffer, Element element) {
    return element == Element::kFp32 ? Download<float>(buffer) : FromHalves(Download<std::uint16_t>(buffer), element);
  }
};

// A host matrix as a factor: its values, rounded to the type that is multiplied, and the place of element (i, j) of
// op().
struct Factor {
  std::size_t rows, columns, stride;
  Transpose transpose;
  std::vector<float> values;

  static Factor Random(std::size_t rows, std::size_t columns, Transpose transpose, std::size_t gap, Element element,
                       SplitMix& random) {
    const bool t = transpose == Transpose::kYes;
    const std::size_t stride = (t ? rows : columns) + gap;
    return {rows, columns, stride, transpose, Rounded(RandomFloats((t ? columns : rows) * stride, random), element)};
  }
  double At(std::size_t i, std::size_t j) const {
    return double(transpose == Transpose::kYes ? values[j * stride + i] : values[i * stride + j]);
  }
};

std::vector<double> Product64(const Factor& a, const Factor& b) {
  std::vector<double> c(a.rows * b.columns);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t l = 0; l < a.columns; ++l)
      for (std::size_t j = 0; j < b.columns; ++j) c[i * b.columns + j] += a.At(i, l) * b.At(l, j);
  return c;
}

TEST_F(GpuGemmTest, AgreesWithFloat64) {
  SplitMix random(1);
  for (const GemmShape& shape : kShapes)
    for (const auto ta : {Transpose::kNo, Transpose::kYes})
      for (const auto tb : {Transpose::kNo, Transpose::kYes})
        for (const float beta : {0.0f, 1.0f, -0.5f}) {
          const auto [m, n, k] = shape;
          const Factor a = Factor::Random(m, k, ta, 2, Element::kFp32, random);
          const Factor b = Factor::Random(k, n, tb, 1, Element::kFp32, random);
          const std::size_t stride = n + 3;
          const std::vector<float> before = beta == 0 ? Poisoned(m * stride) : RandomFloats(m * stride, random);
          DeviceBuffer da = Upload(a.values), db = Upload(b.values), dc = Upload(before);
          Gemm(stream(), shape, 0.75f, {da.as<float>(), a.stride, ta}, {db.as<float>(), b.stride, tb}, beta,
               dc.as<float>(), stride);
          const std::vector<float> c = Download<float>(dc);
          const std::vector<double> product = Product64(a, b);
          for (std::size_t i = 0; i < m; ++i)
            for (std::size_t j = 0; j < stride; ++j) {
              const float old = before[i * stride + j], actual = c[i * stride + j];
              if (j >= n) {
                ASSERT_TRUE(SameBits({actual}, {old})) << "what lies between the rows stays";
                continue;
              }
              const double expected = 0.75 * product[i * n + j] + (beta == 0 ? 0 : double(beta) * double(old));
              ASSERT_NEAR(actual, expected, Tolerance(k, Precision::kFp32)) << m << " " << n << " " << k;
            }
        }
}

TEST_F(GpuGemmTest, Bf16RoundsTheFactorsOnly) {
  SplitMix random(2);
  for (const GemmShape& shape : kShapes)
    for (const auto ta : {Transpose::kNo, Transpose::kYes})
      for (const auto tb : {Transpose::kNo, Transpose::kYes}) {
        const auto [m, n, k] = shape;
        Factor a = Factor::Random(m, k, ta, 2, Element::kFp32, random);
        Factor b = Factor::Random(k, n, tb, 0, Element::kFp32, random);
        DeviceBuffer da = Upload(a.values), db = Upload(b.values), dc = Upload(Poisoned(m * (n + 3)));
        GemmBf16(stream(), shape, {da.as<float>(), a.stride, ta}, {db.as<float>(), b.stride, tb}, dc.as<float>(),
                 n + 3);
        const std::vector<float> c = Download<float>(dc);
        a.values = Rounded(a.values, Element::kBf16), b.values = Rounded(b.values, Element::kBf16);
        const std::vector<double> expected = Product64(a, b);
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t j = 0; j < n; ++j)
            ASSERT_NEAR(c[i * (n + 3) + j], expected[i * n + j], Tolerance(k, Precision::kBf16));
      }
}

// Each matrix of a shape is aligned or not: a plan for aligned matrices must not be used for unaligned ones.
TEST_F(GpuGemmTest, UnalignedMatrices) {
  SplitMix random(9);
  const GemmShape shape{40, 24, 32};
  for (const Precision precision : {Precision::kFp32, Precision::kBf16})
    for (const int shifted : {0, 1, 2, 4, 7}) {  // bits: A, B, C
      const Element element = ElementOf(precision);
      const std::size_t width = element == Element::kFp32 ? 4 : 2;
      const Factor a = Factor::Random(shape.m, shape.k, Transpose::kNo, 0, element, random);
      const Factor b = Factor::Random(shape.k, shape.n, Transpose::kNo, 0, element, random);
      const auto behind = [](std::vector<float> values) {
        values.insert(values.begin(), 0.0f);
        return values;
      };
      const auto at = [&](DeviceBuffer& buffer, int bit) {
        return static_cast<std::byte*>(buffer.data()) + ((shifted & bit) != 0 ? width : 0);
      };
      DeviceBuffer da = UploadAs((shifted & 1) != 0 ? behind(a.values) : a.values, element);
      DeviceBuffer db = UploadAs((shifted & 2) != 0 ? behind(b.values) : b.values, element);
      DeviceBuffer dc = UploadAs(Poisoned(shape.m * shape.n + 1), element);
      Multiply(stream(), {.shape = shape,
                          .precision = precision,
                          .a = {at(da, 1), element, shape.k},
                          .b = {at(db, 2), element, shape.n},
                          .c = {at(dc, 4), element, shape.n}});
      const std::vector<float> c = DownloadAs(dc, element);
      const std::vector<double> expected = Product64(a, b);
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(c[i + ((shifted & 4) != 0 ? 1 : 0)], expected[i],
                    Tolerance(shape.k, precision) + 1.5 * Ulp(element) * std::abs(expected[i]))
            << shifted;
    }
}

constexpr Epilogue kEpilogues[] = {
    Epilogue::kNone,        Epilogue::kBias,         Epilogue::kRelu,         Epilogue::kReluBias,
    Epilogue::kReluMask,    Epilogue::kReluBiasMask, Epilogue::kReluGradient, Epilogue::kReluBiasGradient,
    Epilogue::kBiasGradient};

bool AddsBias(Epilogue e) { return e == Epilogue::kBias || e == Epilogue::kReluBias || e == Epilogue::kReluBiasMask; }
bool IsRelu(Epilogue e) {
  return e == Epilogue::kRelu || e == Epilogue::kReluBias || e == Epilogue::kReluMask || e == Epilogue::kReluBiasMask;
}
bool IsMasked(Epilogue e) { return e == Epilogue::kReluGradient || e == Epilogue::kReluBiasGradient; }

// One product with an epilogue, computed in float64 and on the GPU.
struct EpilogueCase {
  GemmShape shape;
  Precision precision;
  Element factors, c;
  Epilogue epilogue;
  bool bias_aligned;
  int runs = 1;
};

class GpuEpilogueTest : public GpuGemmTest {
 protected:
  void Check(const EpilogueCase& test, SplitMix& random) {
    const auto [m, n, k] = test.shape;
    const Element multiplied = ElementOf(test.precision);
    // Factors that the GPU would round are rounded already, so that it sums the same numbers as the reference.
    const Factor a = Factor::Random(m, k, test.epilogue == Epilogue::kBiasGradient ? Transpose::kYes : Transpose::kNo,
                                    0, multiplied, random);
    const Factor b = Factor::Random(k, n, Transpose::kYes, 0, multiplied, random);
    const std::vector<float> bias = Rounded(RandomFloats(n + 1, random), test.c);
    std::vector<std::uint32_t> mask(ReluMaskWords(m, n));
    for (std::uint32_t& word : mask) word = std::uint32_t(random.Next());
    const std::size_t stride = n + 8, shift = test.bias_aligned ? 0 : 1;

    DeviceBuffer da = UploadAs(a.values, test.factors), db = UploadAs(b.values, test.factors);
    DeviceBuffer dc = UploadAs(Poisoned(m * stride), test.c), dmask = Upload(mask);
    const bool writes_bias = test.epilogue == Epilogue::kReluBiasGradient || test.epilogue == Epilogue::kBiasGradient;
    DeviceBuffer dbias = UploadAs(writes_bias ? Poisoned(std::max(m, n) + 1) : bias, test.c);
    auto* const bias_at = static_cast<std::byte*>(dbias.data()) + shift * (test.c == Element::kFp32 ? 4 : 2);
    const Product product{.shape = test.shape,
                          .precision = test.precision,
                          .a = {da.data(), test.factors, a.stride, a.transpose},
                          .b = {db.data(), test.factors, b.stride, b.transpose},
                          .c = {dc.data(), test.c, stride},
                          .epilogue = test.epilogue,
                          .bias = bias_at,
                          .mask = dmask.as<std::uint32_t>()};
    for (int run = 0; run < test.runs; ++run) Multiply(stream(), product);
    const std::vector<float> c = DownloadAs(dc, test.c), bias_after = DownloadAs(dbias, test.c);
    const std::vector<std::uint32_t> mask_after = Download<std::uint32_t>(dmask);

    const double tolerance = Tolerance(k, test.precision);
    std::vector<double> expected = Product64(a, b), sums(n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double& e = expected[i * n + j];
        // The product may be rounded before the bias is added, and the sum then again.
        const double bound = tolerance + 2 * Ulp(test.c) * (std::abs(e) + 1);
        if (AddsBias(test.epilogue)) e += double(bias[j + shift]);
        if (IsMasked(test.epilogue) && !BitOf(mask, n, i, j)) e = 0;
        const bool positive = e > 0, close = std::abs(e) < bound;
        if (IsRelu(test.epilogue)) e = std::max(e, 0.0);
        const float actual = c[i * stride + j];
        ASSERT_NEAR(actual, e, bound) << Name(test) << " at " << i << ", " << j;
        if ((test.epilogue == Epilogue::kReluMask || test.epilogue == Epilogue::kReluBiasMask) && !close) {
          ASSERT_EQ(BitOf(mask_after, n, i, j), positive) << Name(test) << " at " << i << ", " << j;
        }
        sums[j] += double(actual);
      }
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = n; j < stride; ++j) ASSERT_TRUE(std::isnan(c[i * stride + j])) << Name(test);
    if (test.epilogue == Epilogue::kReluBiasGradient) ExpectSums(test, sums, bias_after, shift, m, tolerance);
    if (test.epilogue == Epilogue::kBiasGradient) {
      sums.assign(m, 0);
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t l = 0; l < k; ++l) sums[i] += a.At(i, l);
      ExpectSums(test, sums, bias_after, shift, k, tolerance);
    }
  }

 private:
  static std::string Name(const EpilogueCase& t) {
    std::ostringstream name;
    name << "epilogue " << int(t.epilogue) << " of " << t.shape.m << " x " << t.shape.n << " x " << t.shape.k
         << ", precision " << int(t.precision) << ", factors " << int(t.factors) << ", C " << int(t.c)
         << (t.bias_aligned ? "" : ", bias not aligned");
    return name.str();
  }

  // A fused sum may use the values of C before they are rounded.
  static void ExpectSums(const EpilogueCase& test, const std::vector<double>& sums, const std::vector<float>& actual,
                         std::size_t shift, std::size_t terms, double tolerance) {
    const double slack = tolerance * std::sqrt(double(terms) + 1) * 3 + 1e-5 * double(terms);
    for (std::size_t j = 0; j < sums.size(); ++j)
      ASSERT_NEAR(actual[j + shift], sums[j],
                  slack + Ulp(test.c) * (2 * std::abs(sums[j]) + 3 * std::sqrt(double(terms) * 32)))
          << Name(test) << " at " << j;
  }
};

TEST_F(GpuEpilogueTest, AllEpilogues) {
  SplitMix random(3);
  struct Kind {
    Precision precision;
    Element factors, c;
  };
  constexpr Kind kKinds[] = {
      {Precision::kFp32, Element::kFp32, Element::kFp32}, {Precision::kTf32, Element::kFp32, Element::kFp32},
      {Precision::kBf16, Element::kFp32, Element::kFp32}, {Precision::kBf16, Element::kBf16, Element::kFp32},
      {Precision::kBf16, Element::kBf16, Element::kBf16}, {Precision::kFp16, Element::kFp32, Element::kFp32},
      {Precision::kFp16, Element::kFp16, Element::kFp32}, {Precision::kFp16, Element::kFp16, Element::kFp16}};
  for (const GemmShape& shape : kShapes)
    for (const auto& [precision, factors, c] : kKinds)
      for (const Epilogue epilogue : kEpilogues)
        for (const bool bias_aligned : {true, false})
          Check({shape, precision, factors, c, epilogue, bias_aligned}, random);
}

// Of integers that every element holds: what the mask says of sums above and below 0, whichever way it comes about, and
// of those that are exactly 0 where it is a pass of its own, as of a bias that is not aligned: some fused epilogues set
// their bits (CUTLASS's ask whether a sum is not below 0), some do not.
TEST_F(GpuGemmTest, MasksAtExactZeros) {
  const std::size_t m = 64, n = 128, k = 32;
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16})
    for (const std::size_t shift : {0, 1}) {
      const Element element = ElementOf(precision);
      std::vector<float> a(m * k, 1.0f), b(n * k, 0.0f), bias(n + 1);
      for (std::size_t j = 0; j < n; ++j) {  // what is multiplied is j % 3 - 1 in column j
        b[j * k] = float(j % 3) - 1.0f;
        bias[j + shift] = float(j % 4) - 1.0f;
      }
      DeviceBuffer da = UploadAs(a, element), db = UploadAs(b, element), dbias = UploadAs(bias, element);
      DeviceBuffer dc = UploadAs(Poisoned(m * n), element);
      DeviceBuffer dmask = Upload(std::vector<std::uint32_t>(ReluMaskWords(m, n), 0xdeadbeef));
      Multiply(stream(), {.shape = {m, n, k},
                          .precision = precision,
                          .a = {da.data(), element, k},
                          .b = {db.data(), element, k, Transpose::kYes},
                          .c = {dc.data(), element, n},
                          .epilogue = Epilogue::kReluBiasMask,
                          .bias = static_cast<std::byte*>(dbias.data()) + shift * (element == Element::kFp32 ? 4 : 2),
                          .mask = dmask.as<std::uint32_t>()});
      const std::vector<std::uint32_t> mask = Download<std::uint32_t>(dmask);
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          const float sum = float(j % 3) - 1.0f + float(j % 4) - 1.0f;
          if (sum == 0 && shift == 0) continue;
          ASSERT_EQ(BitOf(mask, n, i, j), sum > 0)
              << "precision " << int(precision) << (shift == 0 ? "" : ", not fused") << ": " << sum;
        }
    }
}

// The fastest epilogue is used, fused or not. Each product is computed three times; the second time it is measured.
TEST_F(GpuEpilogueTest, AllEpiloguesWithMeasuredAlgorithms) {
  SplitMix random(4);
  GemmAlgorithms algorithms = MakeGemmAlgorithms(stream());
  UseGemmAlgorithms(stream(), &algorithms);
  for (const Epilogue epilogue : kEpilogues) {
    Check({{300, 256, 128}, Precision::kBf16, Element::kBf16, Element::kBf16, epilogue, true, 3}, random);
    Check({{300, 256, 128}, Precision::kTf32, Element::kFp32, Element::kFp32, epilogue, true, 3}, random);
  }
  EXPECT_EQ(algorithms.size(), 2 * std::size(kEpilogues));
  UseGemmAlgorithms(stream(), nullptr);
}

TEST_F(GpuGemmTest, MeasuredAlgorithmsGiveTheSameBitsAgain) {
  SplitMix random(5);
  const std::string path = ::testing::TempDir() + "gpu_gemm_test-" + std::to_string(::getpid());
  const std::vector<float> x = RandomFloats(512 * 256, random), w = RandomFloats(128 * 256, random);
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 2; ++run) {
    GemmAlgorithms algorithms = MakeGemmAlgorithms(stream());
    const Status loaded = algorithms.Load(path);
    EXPECT_EQ(loaded.has_value(), run == 1);
    UseGemmAlgorithms(stream(), &algorithms);
    DeviceBuffer dx = Upload(x), dw = Upload(w), dy = Upload(Poisoned(512 * 128));
    for (int step = 0; step < 2; ++step)
      LinearForward(stream(), {512, 256, 128, Precision::kBf16}, dx.as<float>(), dw.as<float>(), nullptr, true,
                    dy.as<float>());
    results.push_back(Download<float>(dy));
    EXPECT_EQ(algorithms.changed(), run == 0) << "the second time it is in the file";
    EXPECT_TRUE(algorithms.Save(path));
    UseGemmAlgorithms(stream(), nullptr);
  }
  EXPECT_TRUE(SameBits(results[0], results[1]));
  std::filesystem::remove(path);
}

// Two equal layers in one step do not count as a repeated product.
TEST_F(GpuGemmTest, AProductThatOccursOnceIsNotMeasured) {
  SplitMix random(9);
  GemmAlgorithms algorithms = MakeGemmAlgorithms(stream());
  UseGemmAlgorithms(stream(), &algorithms);
  const std::size_t rows = 40, width = 64;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {  // without memory for rounding, and with it
    const std::size_t before = algorithms.size();
    DeviceBuffer x = Upload(RandomFloats(rows * width, random)), y = Upload(Poisoned(rows * width));
    DeviceBuffer w1 = Upload(RandomFloats(width * width, random)), w2 = Upload(RandomFloats(width * width, random));
    const auto layer = [&](DeviceBuffer& w) {
      LinearForward(stream(), {rows, width, width, precision}, x.as<float>(), w.as<float>(), nullptr, false,
                    y.as<float>());
    };
    layer(w1), layer(w2);
    EXPECT_EQ(algorithms.size(), before);
    layer(w1), layer(w2);
    EXPECT_EQ(algorithms.size(), before + 1);
  }
  UseGemmAlgorithms(stream(), nullptr);
}

constexpr LinearShape kLayers[] = {{1, 1, 1}, {5, 3, 7}, {64, 33, 1}, {33, 100, 17},
                                   {0, 3, 4}, {3, 0, 4}, {4, 3, 0},   {256, 128, 64}};

// The interface of the CPU: fp32 in, fp32 out.
TEST_F(GpuGemmTest, LayersAgreeWithTheCpu) {
  SplitMix random(6);
  for (LinearShape shape : kLayers)
    for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16})
      for (const bool relu : {false, true}) {
        const auto [rows, in, out, unused] = shape;
        shape.precision = precision;
        const auto rounded = [&](std::size_t n) { return Rounded(RandomFloats(n, random), ElementOf(precision)); };
        const std::vector<float> x = rounded(rows * in), w = rounded(out * in), bias = RandomFloats(out, random);
        const std::vector<float> dy = rounded(rows * out);
        DeviceBuffer d_x = Upload(x), d_w = Upload(w), d_bias = Upload(bias), d_dy = Upload(dy);
        DeviceBuffer d_y = Upload(Poisoned(rows * out)), d_dx = Upload(Poisoned(rows * in));
        DeviceBuffer d_dw = Upload(Poisoned(out * in)), d_dbias = Upload(Poisoned(out));
        LinearForward(stream(), shape, d_x.as<float>(), d_w.as<float>(), d_bias.as<float>(), relu, d_y.as<float>());
        const std::vector<float> y = Download<float>(d_y);
        LinearBackward(stream(), shape, d_x.as<float>(), d_w.as<float>(), d_y.as<float>(), relu, d_dy.as<float>(),
                       d_dx.as<float>(), d_dw.as<float>(), d_dbias.as<float>());
        std::vector<float> e_y = Poisoned(rows * out), e_dy = dy, e_dx = Poisoned(rows * in);
        std::vector<float> e_dw = Poisoned(out * in), e_dbias = Poisoned(out);
        const LinearShape cpu{rows, in, out};
        LinearForward(cpu, x.data(), w.data(), bias.data(), relu, e_y.data());
        // Uses the GPU's y, because a sum close to 0 may have the other sign on the CPU.
        LinearBackward(cpu, x.data(), w.data(), y.data(), relu, e_dy.data(), e_dx.data(), e_dw.data(), e_dbias.data());
        const auto near = [&](const std::vector<float>& actual, const std::vector<float>& expected, std::size_t k) {
          ExpectNear(actual, {expected.begin(), expected.end()}, Tolerance(k, precision));
        };
        near(y, e_y, in);
        EXPECT_TRUE(SameBits(Download<float>(d_dy), e_dy));
        near(Download<float>(d_dx), e_dx, out);
        near(Download<float>(d_dw), e_dw, rows);
        near(Download<float>(d_dbias), e_dbias, rows);
        // Without the optional outputs.
        std::vector<float> before = Download<float>(d_dw);
        LinearForward(stream(), shape, d_x.as<float>(), d_w.as<float>(), nullptr, false, d_y.as<float>());
        LinearBackward(stream(), shape, d_x.as<float>(), d_w.as<float>(), nullptr, false, d_dy.as<float>(), nullptr,
                       d_dw.as<float>(), nullptr);
        near(Download<float>(d_dw), before, rows);
      }
}

// Two layers in 16 bits, forward and backward with masks, compared with float64 of the values that the GPU rounded.
TEST_F(GpuGemmTest, LayersOf16Bits) {
  SplitMix random(7);
  for (const Precision precision : {Precision::kBf16, Precision::kFp16})
    for (const auto& [rows, in, out, unused] : kLayers) {
      const LinearShape shape{rows, in, out, precision};
      const Element element = ElementOf(precision);
      const auto values = [&](std::size_t n) { return Rounded(RandomFloats(n, random), element); };
      const Factor x{rows, in, in, Transpose::kNo, values(rows * in)},
          w{in, out, in, Transpose::kYes, values(out * in)};
      const Factor dy{rows, out, out, Transpose::kNo, values(rows * out)};
      const std::vector<float> bias = values(out);
      std::vector<std::uint32_t> below(ReluMaskWords(rows, in));
      for (std::uint32_t& word : below) word = std::uint32_t(random.Next());
      const Halves poison(rows * std::max(in, out), 0xffff);
      DeviceBuffer d_x = UploadAs(x.values, element), d_w = UploadAs(w.values, element);
      DeviceBuffer d_dy = UploadAs(dy.values, element), d_bias = UploadAs(bias, element), d_below = Upload(below);
      DeviceBuffer d_y = Upload(Halves(rows * out, 0xffff)), d_dx = Upload(Halves(rows * in, 0xffff));
      DeviceBuffer d_mask = Upload(std::vector<std::uint32_t>(ReluMaskWords(rows, out), 0xdeadbeef));
      DeviceBuffer d_dw = Upload(Poisoned(out * in)), d_dbias = Upload(Poisoned(out));
      DeviceBuffer d_dbelow = Upload(Halves(in, 0xffff));
      LinearForward(stream(), shape, d_x.as<std::uint16_t>(), d_w.as<std::uint16_t>(), d_bias.as<std::uint16_t>(),
                    d_y.as<std::uint16_t>(), d_mask.as<std::uint32_t>());
      LinearBackward(stream(), shape,
                     LinearGradients<std::uint16_t>{.x = d_x.as<std::uint16_t>(),
                                                    .w = d_w.as<std::uint16_t>(),
                                                    .dy = d_dy.as<std::uint16_t>(),
                                                    .dw = d_dw.as<float>(),
                                                    .dbias = d_dbias.as<float>(),
                                                    .dx = d_dx.as<std::uint16_t>(),
                                                    .x_mask = d_below.as<std::uint32_t>(),
                                                    .x_bias_gradient = d_dbelow.as<std::uint16_t>()});
      std::vector<double> e_y = Product64(x, w);
      const std::vector<float> y = DownloadAs(d_y, element);
      const std::vector<std::uint32_t> mask = Download<std::uint32_t>(d_mask);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t o = 0; o < out; ++o) {
          const double product = e_y[i * out + o], sum = product + double(bias[o]);
          const double bound = Tolerance(in, precision) + 2 * Ulp(element) * (std::abs(product) + 1);
          ASSERT_NEAR(y[i * out + o], std::max(0.0, sum), bound);
          if (std::abs(sum) > bound) {
            ASSERT_EQ(BitOf(mask, out, i, o), sum > 0);
          }
        }
      const Factor dy_t{out, rows, out, Transpose::kYes, dy.values}, w_n{out, in, in, Transpose::kNo, w.values};
      ExpectNear(Download<float>(d_dw), Product64(dy_t, x), Tolerance(rows, precision));
      std::vector<double> e_dbias(out), e_dx = Product64(dy, w_n), e_dbelow(in);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t o = 0; o < out; ++o) e_dbias[o] += dy.At(i, o);
      ExpectNear(Download<float>(d_dbias), e_dbias, Tolerance(rows, precision));
      const std::vector<float> dx = DownloadAs(d_dx, element);
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t k = 0; k < in; ++k) {
          double& e = e_dx[i * in + k];
          if (!BitOf(below, in, i, k)) e = 0;
          ASSERT_NEAR(dx[i * in + k], e, Tolerance(out, precision) + 1.5 * Ulp(element) * std::abs(e));
          e_dbelow[k] += e;
        }
      ExpectNear(DownloadAs(d_dbelow, element), e_dbelow, 4 * Ulp(element) + 1e-4,
                 1 + std::sqrt(double(rows) * double(out)));
    }
}

// Layers in fp32 with a mask, which the next layer's backward pass needs.
TEST_F(GpuGemmTest, LayersOf32BitsWithMasks) {
  SplitMix random(8);
  const std::size_t rows = 200, in = 96, out = 72;
  const Factor x{rows, in, in, Transpose::kNo, RandomFloats(rows * in, random)};
  const Factor w{in, out, in, Transpose::kYes, RandomFloats(out * in, random)};
  DeviceBuffer d_x = Upload(x.values), d_w = Upload(w.values), d_y = Upload(Poisoned(rows * out));
  DeviceBuffer d_mask = Upload(std::vector<std::uint32_t>(ReluMaskWords(rows, out), 0xdeadbeef));
  LinearForward(stream(), {rows, in, out}, d_x.as<float>(), d_w.as<float>(), nullptr, d_y.as<float>(),
                d_mask.as<std::uint32_t>());
  const std::vector<double> e = Product64(x, w);
  const std::vector<float> y = Download<float>(d_y);
  const std::vector<std::uint32_t> mask = Download<std::uint32_t>(d_mask);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t o = 0; o < out; ++o) {
      ASSERT_NEAR(y[i * out + o], std::max(0.0, e[i * out + o]), Tolerance(in, Precision::kFp32));
      if (std::abs(e[i * out + o]) > 1e-3) {
        ASSERT_EQ(BitOf(mask, out, i, o), e[i * out + o] > 0);
      }
    }
}

TEST_F(GpuGemmTest, NotEnoughMemoryToRoundFactorsIsAnError) {
  DeviceBuffer one = Upload(std::vector<float>(1));
  const std::size_t m = std::size_t{1} << 40;
  GemmBf16(stream(), {m, 1, 512}, {one.as<float>(), 512}, {one.as<float>(), 1}, one.as<float>(), 1);
  const Status status = stream().Wait();
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("1099511627776 x 1 x 512: 1125899906"), std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("bytes asked for"), std::string::npos) << status.error().message;
  EXPECT_TRUE(stream().Wait().has_value()) << "the stream goes on";
}

}  // namespace
}  // namespace tarn::kernels

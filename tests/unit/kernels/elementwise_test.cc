// Shows that the flat operations agree with float64 at odd lengths and alignments, give the same bits on every
// instruction set, and that reductions sum in the order that their header documents.
#include "kernels/elementwise.h"

#include <cstring>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr std::size_t kLengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1000, 4097};

TEST(ElementwiseTest, AgreesWithTheFormulas) {
  SplitMix random(1);
  for (const std::size_t n : kLengths) {
    const std::vector<float> a = RandomFloats(n, random), b = RandomFloats(n, random);
    std::vector<float> fill = Poisoned(n), add = b, scale = b, relu = b, backward = a;
    Fill(n, 0.5f, fill.data());
    Add(n, a.data(), add.data());
    Scale(n, 3.0f, scale.data());
    Relu(n, relu.data());
    ReluBackward(n, relu.data(), backward.data());
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(fill[i], 0.5f);
      EXPECT_EQ(add[i], a[i] + b[i]);
      EXPECT_EQ(scale[i], 3.0f * b[i]);
      EXPECT_EQ(relu[i], b[i] > 0 ? b[i] : 0.0f);
      EXPECT_EQ(backward[i], b[i] > 0 ? a[i] : 0.0f);
    }
  }
}

double Shape(const std::vector<double>& terms) {
  double s[8] = {};
  for (std::size_t i = 0; i < terms.size(); ++i) s[i % 8] += terms[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

TEST(ElementwiseTest, ReductionsHaveTheDocumentedOrder) {
  SplitMix random(2);
  for (const std::size_t n : kLengths) {
    const std::vector<float> a = RandomFloats(n, random, -1e3, 1e3), b = RandomFloats(n, random);
    std::vector<double> sum(n), dot(n), norm(n);
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = double(a[i]);
      dot[i] = double(a[i]) * double(b[i]);
      norm[i] = double(a[i]) * double(a[i]);
    }
    ForEachTarget([&](const char* name) {
      EXPECT_EQ(Sum(n, a.data()), Shape(sum)) << name << " " << n;
      EXPECT_EQ(Dot(n, a.data(), b.data()), Shape(dot)) << name << " " << n;
      EXPECT_EQ(SquaredNorm(n, a.data()), Shape(norm)) << name << " " << n;
    });
  }
}

TEST(ElementwiseTest, SameBitsOnEveryTargetAndAlignment) {
  SplitMix random(3);
  const std::vector<float> a = RandomFloats(1001, random), b = RandomFloats(1001, random);
  const auto compute = [&](std::size_t shift_in, std::size_t shift_out) {
    Shifted in(a, shift_in), out(b, shift_out);
    Add(a.size(), in.data(), out.data());
    Scale(a.size(), 1.1f, out.data());
    std::vector<float> result = out.values();
    result.push_back(float(Dot(a.size(), in.data(), out.data())));
    return result;
  };
  const std::vector<float> first = compute(0, 0);
  for (const std::size_t shift : {1, 3, 8, 15}) {
    EXPECT_TRUE(SameBits(first, compute(shift, 0)));
    EXPECT_TRUE(SameBits(first, compute(0, shift)));
  }
  ExpectSameBitsOnEveryTarget([&] { return compute(5, 2); });
}

// Otherwise the comparisons of the other tests would run the same code twice.
TEST(ElementwiseTest, TargetsAreReallySwitched) {
  std::set<std::size_t> indices;
  std::size_t targets = 0;
  ForEachTargetInThisMode([&](const char*) {
    Fill(0, 0.0f, nullptr);
    indices.insert(hwy::GetChosenTarget().GetIndex());
    ++targets;
  });
  EXPECT_EQ(indices.size(), targets);
  EXPECT_GE(targets, 1u);
}

TEST(ElementwiseTest, ReluAndNaN) {
  std::vector<float> v = {kPoison, -0.0f, 1.0f, -INFINITY, INFINITY};
  ForEachTarget([&](const char*) {
    std::vector<float> out = v;
    Relu(out.size(), out.data());
    EXPECT_EQ(out, (std::vector<float>{0, 0, 1, 0, INFINITY}));
  });
}

TEST(ElementwiseTest, FindsANonFiniteValueAnywhere) {
  SplitMix random(2);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t n : kLengths) {
    std::vector<float> in = RandomFloats(n, random), out = Poisoned(n);
    EXPECT_TRUE(AllFinite(n, in.data()));
    EXPECT_TRUE(CopyAllFinite(n, in.data(), out.data()));
    EXPECT_EQ(out, in);
    for (std::size_t i = 0; i < n; i += 1 + n / 40) {
      for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        const float before = std::exchange(in[i], bad);
        EXPECT_FALSE(AllFinite(n, in.data())) << i << " of " << n;
        EXPECT_FALSE(CopyAllFinite(n, in.data(), out.data())) << i << " of " << n;
        EXPECT_EQ(std::memcmp(out.data(), in.data(), n * sizeof(float)), 0);
        in[i] = before;
      }
    }
  }
}

TEST(ElementwiseTest, ClipScale) {
  EXPECT_EQ(ClipScale(100.0, 0.0f), 1.0f);
  EXPECT_EQ(ClipScale(100.0, 10.0f), 1.0f);
  EXPECT_EQ(ClipScale(100.0, 5.0f), 0.5f);
  EXPECT_EQ(ClipScale(0.0, 5.0f), 1.0f);
  EXPECT_TRUE(std::isnan(ClipScale(INFINITY, 5.0f)));
  EXPECT_TRUE(std::isnan(ClipScale(NAN, 5.0f)));
}

}  // namespace
}  // namespace tarn::kernels

// Shows that a row's initial values are a pure function of (spec, salt, key, index), that they have the specified
// distribution, and that their bits are those of all earlier versions.
#include "kernels/initialize.h"

#include <set>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

std::vector<float> Row(const InitializerSpec& spec, std::uint64_t salt, Key key, std::size_t dim) {
  std::vector<float> row = Poisoned(dim);
  InitializeRow(spec, salt, key, row);
  return row;
}

TEST(InitializeTest, ZeroAndConstant) {
  EXPECT_EQ(Row({}, 1, 2, 5), std::vector<float>(5, 0.0f));
  EXPECT_EQ(Row({InitializerKind::kConstant, 0.25f, 0}, 1, 2, 5), std::vector<float>(5, 0.25f));
  EXPECT_TRUE(Row({InitializerKind::kNormal, 0, 1}, 1, 2, 0).empty());
}

TEST(InitializeTest, DependsOnSaltKeyAndIndexAlone) {
  for (const auto kind : {InitializerKind::kUniform, InitializerKind::kNormal}) {
    const InitializerSpec spec{kind, 0, 1};
    const std::vector<float> wide = Row(spec, 7, 99, 4096);
    Row(spec, 3, 4, 17);  // other calls in between have no effect
    EXPECT_TRUE(SameBits(wide, Row(spec, 7, 99, 4096)));
    const std::vector<float> narrow = Row(spec, 7, 99, 10);
    EXPECT_TRUE(SameBits(narrow, std::vector<float>(wide.begin(), wide.begin() + 10)));
    EXPECT_FALSE(SameBits(narrow, Row(spec, 8, 99, 10)));
    EXPECT_FALSE(SameBits(narrow, Row(spec, 7, 100, 10)));
    std::set<float> distinct(wide.begin(), wide.end());
    EXPECT_GT(distinct.size(), 4090u);
  }
}

// Rows of any width, with fewer and more values than one vector step, on every instruction set.
TEST(InitializeTest, RowsOfManyKeysEqualThoseOfEachKey) {
  ForEachTarget([](const char* name) {
    for (const auto kind :
         {InitializerKind::kZero, InitializerKind::kConstant, InitializerKind::kUniform, InitializerKind::kNormal})
      for (const std::size_t dim : {0, 1, 3, 8, 10, 16, 255, 256, 257, 600})
        for (const std::size_t n : {0, 1, 2, 33}) {
          const InitializerSpec spec{kind, 0.25f, 1};
          std::vector<Key> keys(n);
          std::vector<float> expected;
          for (std::size_t i = 0; i < n; ++i) {
            keys[i] = Mix64(i);
            const std::vector<float> row = Row(spec, 7, keys[i], dim);
            expected.insert(expected.end(), row.begin(), row.end());
          }
          expected.push_back(kPoison);  // memory after the rows is not changed
          std::vector<float> rows = Poisoned(n * dim + 1);
          InitializeRows(spec, 7, keys, dim, rows.data());
          EXPECT_TRUE(SameBits(rows, expected)) << name << " dim " << dim << " rows " << n;
        }
  });
}

TEST(InitializeTest, SameBitsOnEveryTarget) {
  std::vector<Key> keys(100);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  for (const auto kind : {InitializerKind::kUniform, InitializerKind::kNormal})
    ExpectSameBitsOnEveryTarget([&] {
      std::vector<float> rows = Poisoned(keys.size() * 37);
      InitializeRows({kind, -0.125f, 0.75f}, 42, keys, 37, rows.data());
      return rows;
    });
}

TEST(InitializeTest, UniformFillsItsRangeEvenly) {
  const InitializerSpec spec{InitializerKind::kUniform, -0.5f, 1.5f};
  std::vector<int> histogram(10, 0);
  for (Key key = 0; key < 10000; ++key)
    for (const float v : Row(spec, 5, key, 10)) {
      ASSERT_GE(v, -0.5f);
      ASSERT_LE(v, 1.5f);
      ++histogram[std::min<std::size_t>(9, std::size_t((v + 0.5) * 5))];
    }
  for (const int count : histogram) EXPECT_NEAR(count, 10000, 500);  // five standard deviations
}

TEST(InitializeTest, NormalHasTheMomentsAndTails) {
  const InitializerSpec spec{InitializerKind::kNormal, 0, 1};
  double sum = 0, squares = 0, cubes = 0, fourth = 0;
  int beyond_two = 0;
  constexpr int kRows = 20000, kDim = 10;
  constexpr double kN = double(kRows) * kDim;
  for (Key key = 0; key < kRows; ++key)
    for (const float v : Row(spec, 6, key, kDim)) {
      const double z = double(v);
      sum += z;
      squares += z * z;
      cubes += z * z * z;
      fourth += z * z * z * z;
      beyond_two += std::abs(z) > 2;
    }
  EXPECT_NEAR(sum / kN, 0, 5 / std::sqrt(kN));
  EXPECT_NEAR(squares / kN, 1, 5 * std::sqrt(2 / kN));
  EXPECT_NEAR(cubes / kN, 0, 5 * std::sqrt(15 / kN));
  EXPECT_NEAR(fourth / kN, 3, 5 * std::sqrt(96 / kN));
  EXPECT_NEAR(beyond_two / kN, 0.0455, 0.0025);
  const std::vector<float> unit = Row(spec, 1, 1, 100);
  const std::vector<float> moved = Row({InitializerKind::kNormal, 3, 0.5f}, 1, 1, 100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(moved[i], 3 + 0.5 * unit[i], 1e-6);
}

// Checkpoints do not contain rows that were never pushed, so these must have the same initial values in every version.
TEST(InitializeTest, BitsAreStable) {
  std::uint64_t state = 0;
  for (const auto kind : {InitializerKind::kUniform, InitializerKind::kNormal})
    for (Key key = 0; key < 1000; ++key)
      for (const float v : Row({kind, -0.125f, 0.75f}, 42, Mix64(key), 9))
        state = HashCombine(state, std::bit_cast<std::uint32_t>(v));
  EXPECT_EQ(state, 12463130968168813199ULL);
}

}  // namespace
}  // namespace tarn::kernels

// Shows that rows of any width are gathered and scattered, that repeated rows are summed in input order, and that an
// encoded gather equals a gather followed by an encoding.
#include "kernels/rows.h"

#include "kernels/convert.h"
#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

constexpr std::uint32_t kWidths[] = {1, 2, 3, 4, 8, 15, 16, 17, 32, 33, 64, 1000, 1025, 4096};

std::vector<float*> Pointers(std::vector<float>& table, std::uint32_t dim, const std::vector<std::uint32_t>& index) {
  std::vector<float*> out;
  for (const std::uint32_t i : index) out.push_back(table.data() + std::size_t{i} * dim);
  return out;
}

TEST(RowsTest, GatherAndScatter) {
  SplitMix random(1);
  for (const std::uint32_t dim : kWidths)
    for (const std::size_t n : {0, 1, 7, 50}) {
      std::vector<float> table = RandomFloats(std::size_t{20} * dim, random);
      const std::vector<std::uint32_t> index = RandomIndices(n, 20, random);
      const std::vector<float*> rows = Pointers(table, dim, index);
      std::vector<float> gathered = Poisoned(n * dim), by_index = Poisoned(n * dim);
      GatherRows(dim, n, rows.data(), gathered.data());
      GatherByIndex(dim, n, table.data(), index.data(), by_index.data());
      EXPECT_TRUE(SameBits(gathered, by_index));
      for (std::size_t i = 0; i < n; ++i)
        for (std::uint32_t j = 0; j < dim; ++j) ASSERT_EQ(gathered[i * dim + j], table[index[i] * dim + j]);

      const std::vector<float> in = RandomFloats(n * dim, random);
      std::vector<float> expected = table, by_index_table = table;
      for (std::size_t i = 0; i < n; ++i)
        std::copy_n(in.begin() + std::ptrdiff_t(i * dim), dim, expected.begin() + std::ptrdiff_t(index[i] * dim));
      ScatterByIndex(dim, n, in.data(), index.data(), by_index_table.data());
      EXPECT_TRUE(SameBits(by_index_table, expected));
    }
}

// Memory between the rows of the wider matrix is not changed.
TEST(RowsTest, ColumnsAreCopiedAndAdded) {
  SplitMix random(9);
  for (const std::uint32_t columns : kWidths)
    for (const std::size_t rows : {0, 1, 7}) {
      const std::size_t in_stride = columns + 3, out_stride = columns + 1;
      const std::vector<float> in = RandomFloats(rows * in_stride, random);
      const std::vector<float> before = RandomFloats(rows * out_stride, random);
      std::vector<float> copied = before, added = before;
      CopyColumns(rows, columns, in.data(), in_stride, copied.data(), out_stride);
      AddColumns(rows, columns, in.data(), in_stride, added.data(), out_stride);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < out_stride; ++c) {
          const float was = before[r * out_stride + c], given = in[r * in_stride + c];
          ASSERT_EQ(copied[r * out_stride + c], c < columns ? given : was);
          ASSERT_EQ(added[r * out_stride + c], c < columns ? was + given : was);
        }
    }
}

// UBSan reports null pointers that are passed to copies of the standard library.
TEST(RowsTest, NoColumnsNeedNoArrays) {
  CopyColumns(3, 0, nullptr, 0, nullptr, 0);
  AddColumns(3, 0, nullptr, 0, nullptr, 0);
  std::vector<float> out = {1, 2, 3};
  CopyColumns(3, 0, nullptr, 0, out.data(), 1);
  AddColumns(3, 0, nullptr, 0, out.data(), 1);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3}));
}

TEST(RowsTest, EncodedGatherEqualsGatherThenEncode) {
  SplitMix random(2);
  for (const auto codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16, ValueCodec::kInt8})
    for (const std::uint32_t dim : kWidths)
      for (const std::size_t n : {0, 1, 40}) {
        std::vector<float> table = RandomFloats(std::size_t{20} * dim, random);
        const std::vector<float*> rows = Pointers(table, dim, RandomIndices(n, 20, random));
        std::vector<float> gathered = Poisoned(n * dim);
        GatherRows(dim, n, rows.data(), gathered.data());
        const std::size_t bytes = dim == 0 ? 0 : n * CodecRowBytes(codec, dim);
        std::vector<std::byte> expected(bytes + 1), actual(bytes + 1);
        EncodeRows(codec, dim, n, gathered.data(), expected.data() + 1);
        GatherRowsEncoded(codec, dim, n, rows.data(), actual.data() + 1);  // at an odd address, as in a frame
        EXPECT_EQ(expected, actual);
      }
}

TEST(RowsTest, AddRowsAddsRepeatedRowsInOrder) {
  SplitMix random(3);
  for (const std::uint32_t dim : kWidths)
    for (const std::size_t n : {0, 1, 60}) {
      std::vector<float> table = RandomFloats(std::size_t{9} * dim, random);
      std::vector<float> expected = table;
      const std::vector<std::uint32_t> index = RandomIndices(n, 9, random);
      const std::vector<float> in = RandomFloats(n * dim, random);
      AddRows(dim, n, in.data(), Pointers(table, dim, index).data());
      for (std::size_t i = 0; i < n; ++i)
        for (std::uint32_t j = 0; j < dim; ++j) expected[index[i] * dim + j] += in[i * dim + j];
      EXPECT_TRUE(SameBits(table, expected));
    }
}

TEST(RowsTest, ReduceByIndexSumsInInputOrder) {
  SplitMix random(4);
  for (const std::uint32_t dim : kWidths)
    for (const std::size_t n : {0, 1, 300}) {
      constexpr std::size_t kUnique = 31;
      const std::vector<std::uint32_t> index = RandomIndices(n, kUnique - 1, random);  // the last one gets none
      const std::vector<float> in = RandomFloats(n * dim, random);
      std::vector<float> expected(kUnique * dim, 0.0f);
      std::vector<double> exact(kUnique * dim, 0.0);
      for (std::size_t i = 0; i < n; ++i)
        for (std::uint32_t j = 0; j < dim; ++j) {
          expected[index[i] * dim + j] += in[i * dim + j];
          exact[index[i] * dim + j] += double(in[i * dim + j]);
        }
      ForEachTarget([&](const char* name) {
        std::vector<float> out = Poisoned(kUnique * dim);
        ReduceByIndex(n, dim, in.data(), index.data(), kUnique, out.data());
        EXPECT_TRUE(SameBits(out, expected)) << name;
        ExpectNear(out, exact, 1e-5);
      });
    }
  ReduceByIndex(0, 4, nullptr, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace tarn::kernels

// Shows that rows are found beyond byte 2^32 and, if there is enough memory, beyond float 2^32 (only the rows that are
// read are written), and that freed memory can be allocated again. Skipped, with the reason, if there is no GPU or it
// has less memory.
#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/hot_rows.h"
#include "kernels/rows.h"
#include "tests/unit/kernels/gpu_test_util.h"

namespace tarn::kernels {
namespace {

constexpr std::uint32_t kDim = 4096;
constexpr std::size_t kRowsOf4GB = (std::size_t{1} << 32) / (kDim * sizeof(float));
constexpr std::size_t kSlack = std::size_t{1} << 30;  // of other arrays

class GpuLargeArraysTest : public GpuFixture {
 protected:
  // Rows that take a little more than 2^32 bytes, or floats; 0 if the GPU has no room for them.
  std::size_t Rows() {
    for (const std::size_t rows : {4 * kRowsOf4GB + 1000, kRowsOf4GB + 1000})
      if (rows * (kDim * sizeof(float)) + kSlack < stream().free_bytes()) return rows;
    return 0;
  }
};

TEST_F(GpuLargeArraysTest, RowsByIndex) {
  const std::size_t rows = Rows();
  if (rows == 0) GTEST_SKIP() << "less than 5 GB are free";
  auto large = DeviceBuffer::Allocate(stream(), rows * kDim * sizeof(float), "a test's array");
  ASSERT_TRUE(large.has_value()) << large.error().message;
  SplitMix random(1);
  std::vector<std::uint32_t> index;  // of the last rows, backwards, and of the first
  for (std::uint32_t i = 0; i < 300; ++i) index.push_back(std::uint32_t(i % 2 == 0 ? rows - 1 - i : i));
  const std::vector<float> in = RandomFloats(index.size() * kDim, random);
  DeviceBuffer d_in = Upload(in), d_index = Upload(index), d_out = Upload(Poisoned(in.size()));
  ScatterByIndex(stream(), kDim, index.size(), d_in.as<float>(), d_index.as<std::uint32_t>(), large->as<float>());
  GatherByIndex(stream(), kDim, index.size(), large->as<float>(), d_index.as<std::uint32_t>(), d_out.as<float>());
  EXPECT_TRUE(SameBits(Download<float>(d_out), in));
  const std::vector<float> last = Fetch(large->as<const float>() + (rows - 1) * kDim, kDim);
  EXPECT_TRUE(SameBits(last, {in.begin(), in.begin() + kDim})) << "it is where the host finds it";
}

TEST_F(GpuLargeArraysTest, HotRows) {
  const std::size_t rows = Rows();
  if (rows == 0) GTEST_SKIP() << "less than 5 GB are free";
  constexpr std::uint32_t kKeys = 5000;
  auto cache = MakeHotRows(stream(), {.dim = kDim, .rows = rows, .batch_keys_max = kKeys});
  ASSERT_TRUE(cache.has_value()) << cache.error().message;
  SplitMix random(2);
  std::vector<Key> keys(kKeys);
  for (std::uint32_t i = 0; i < kKeys; ++i) keys[i] = i;
  const std::vector<float> in = RandomFloats(kKeys * kDim, random);
  DeviceBuffer d_keys = Upload(keys), d_slots = Upload(std::vector<std::uint32_t>(kKeys, kNoSlot)), d_in = Upload(in);
  DeviceBuffer d_out = Upload(Poisoned(in.size()));
  auto* const slots = d_slots.as<std::uint32_t>();
  (*cache)->Insert(kKeys, d_keys.as<Key>(), Clock(0), slots);
  (*cache)->Fill(kKeys, nullptr, slots, d_in.as<float>(), Clock(0));
  (*cache)->Read(kKeys, slots, d_out.as<float>());
  EXPECT_TRUE(SameBits(Download<float>(d_out), in));
  const std::vector<std::uint32_t> taken = Download<std::uint32_t>(d_slots);
  const std::size_t last = std::size_t(std::ranges::max_element(taken) - taken.begin());
  EXPECT_GT(taken[last], rows - 1000) << "a row of the last buckets is among them";
  const std::vector<float> row = Fetch((*cache)->rows() + std::size_t{taken[last]} * kDim, kDim);
  const auto expected = in.begin() + std::ptrdiff_t(last * kDim);
  EXPECT_TRUE(SameBits(row, {expected, expected + kDim})) << "it is where the host finds it";
}

// Allocates more than half of the free memory, a little more each time, which needs the memory of the previous one.
TEST_F(GpuLargeArraysTest, FreedMemoryIsReusedForOtherSizes) {
  const std::size_t free = stream().free_bytes();
  for (const std::size_t sixteenths : {9u, 10u, 9u, 11u}) {
    auto large = DeviceBuffer::Allocate(stream(), free / 16 * sixteenths, "a test's array");
    ASSERT_TRUE(large.has_value()) << sixteenths << ": " << large.error().message;
    Fill(stream(), 1000, 1.0f, large->as<float>());
  }
  EXPECT_TRUE(stream().Wait().has_value());
}

}  // namespace
}  // namespace tarn::kernels

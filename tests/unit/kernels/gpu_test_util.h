// Shared by the tests of GPU operations: a stream, or a skip with the reason if there is none, and copies of arrays to
// and from the GPU. The CPU treats subnormals as zero, like the GPU. TARN_TEST_BLOCKS limits the blocks per launch, so
// that small arrays need several iterations of a block.
#pragma once

#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/blocks.h"
#include "kernels/stream.h"
#include "tests/unit/kernels/kernel_test_util.h"
#include "tests/unit/kernels/pinned_copies.h"

namespace tarn::kernels {

class GpuFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    auto stream = Stream::Make();
    if (!stream) GTEST_SKIP() << stream.error().message;
    stream_ = std::move(*stream);
    copies_.emplace(stream_.get());
    if (const char* blocks = std::getenv("TARN_TEST_BLOCKS")) few_blocks_.emplace(std::strtoul(blocks, nullptr, 10));
  }

  Stream& stream() { return *stream_; }

  template <typename T>
  DeviceBuffer Upload(const std::vector<T>& values) {
    auto buffer = DeviceBuffer::Allocate(stream(), values.size() * sizeof(T), "a test's array");
    EXPECT_TRUE(buffer.has_value()) << buffer.error().message;
    Put(values, buffer->data());
    return std::move(*buffer);
  }

  template <typename T>
  void Put(const std::vector<T>& values, void* placed) {
    copies_->ToDevice(values.data(), values.size() * sizeof(T), placed);
  }

  template <typename T>
  std::vector<T> Download(DeviceBuffer& buffer) {
    return Fetch(buffer.as<const T>(), buffer.size() / sizeof(T));
  }

  template <typename T>
  std::vector<T> Fetch(const T* placed, std::size_t n) {
    std::vector<T> values(n);
    copies_->ToHost(placed, n * sizeof(T), values.data());
    return values;
  }

 private:
  const SubnormalsAreZero as_on_the_gpu_;
  std::unique_ptr<Stream> stream_;
  std::optional<PinnedCopies> copies_;
  std::optional<cuda::FewBlocks> few_blocks_;
};

// Expects equal bits; NaNs may differ in their bits.
inline void ExpectSameNumbers(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(SameBits({a[i]}, {b[i]}) || (std::isnan(a[i]) && std::isnan(b[i]))) << i << ": " << a[i] << " " << b[i];
}

}  // namespace tarn::kernels

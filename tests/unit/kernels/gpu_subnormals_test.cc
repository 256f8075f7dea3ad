// Shows that a GPU gives the same bits as a CPU that treats subnormals as zero, also next to zero. Skipped, with the
// reason, if there is no GPU.
#include "kernels/subnormals.h"

#include <cfloat>

#include "kernels/cross.h"
#include "kernels/quantize.h"
#include "tests/unit/kernels/gpu_test_util.h"

namespace tarn::kernels {
namespace {

class GpuSubnormalsTest : public GpuFixture {};

// Values around the smallest ones that have a scale, and around those whose scale is not subnormal.
TEST_F(GpuSubnormalsTest, Int8RowsNextToZero) {
  constexpr std::uint32_t kDim = 5;
  std::vector<float> in;
  for (const float edge : {127.0f / FLT_MAX, 127.0f * FLT_MIN, FLT_MIN})
    for (const float factor : {0.5f, 1.0f - 0x1p-23f, 1.0f, 1.0f + 0x1p-23f, 2.0f, 3.0f})
      for (std::uint32_t j = 0; j < kDim; ++j) in.push_back(edge * factor * (1.0f - float(j) / 4));
  const std::size_t rows = in.size() / kDim, bytes = rows * Int8RowBytes(kDim);
  DeviceBuffer device = Upload(in), encoded = Upload(std::vector<std::byte>(bytes));
  EncodeInt8Rows(stream(), kDim, rows, device.as<float>(), encoded.as<std::byte>());
  std::vector<std::byte> expected(bytes);
  {
    const SubnormalsAreZero zero;
    EncodeInt8Rows(kDim, rows, in.data(), expected.data());
  }
  EXPECT_EQ(Download<std::byte>(encoded), expected);
}

TEST_F(GpuSubnormalsTest, SumsAndProductsNextToZero) {
  const std::vector<float> in = {FLT_MIN, FLT_MIN / 2, -FLT_MIN, 1.5f * FLT_MIN, FLT_TRUE_MIN, 0.0f, -FLT_TRUE_MIN};
  const std::vector<float> factors(in.size(), 0.75f);
  const std::vector<float> added = {-0.5f * FLT_MIN, FLT_MIN / 2, 1.25f * FLT_MIN, -FLT_MIN, FLT_TRUE_MIN, 0.0f, 0.0f};
  DeviceBuffer device_in = Upload(in), device_factors = Upload(factors), device_out = Upload(added);
  CrossForward(stream(), in.size(), device_in.as<float>(), device_factors.as<float>(), device_out.as<float>(),
               device_out.as<float>());
  std::vector<float> expected(in.size());
  {
    const SubnormalsAreZero zero;
    CrossForward(in.size(), in.data(), factors.data(), added.data(), expected.data());
  }
  EXPECT_TRUE(SameBits(Download<float>(device_out), expected));
}

}  // namespace
}  // namespace tarn::kernels

// Shows that operations of models and of the training step give the same results on a GPU as on the CPU: strided
// copies, the bias, losses row by row, clipping, padded matrices. Outputs are poisoned first. Skipped, with the reason,
// if there is no GPU.
#include <algorithm>
#include <array>

#include "kernels/convert.h"
#include "kernels/device_gemm.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "kernels/rows.h"
#include "tests/unit/kernels/gpu_test_util.h"

namespace tarn::kernels {
namespace {

using GpuModelOperationsTest = GpuFixture;

// Rounds `values` to the precision's 16 bits, whose patterns it returns.
std::vector<std::uint16_t> Rounded(Precision precision, std::vector<float>* values) {
  const ValueCodec codec = precision == Precision::kBf16 ? ValueCodec::kBf16 : ValueCodec::kFp16;
  std::vector<std::uint16_t> halves(values->size());
  auto* const bytes = reinterpret_cast<std::byte*>(halves.data());
  EncodeValues(codec, values->size(), values->data(), bytes);
  DecodeValues(codec, values->size(), bytes, values->data());
  return halves;
}

TEST_F(GpuModelOperationsTest, Columns) {
  SplitMix random(1);
  for (const std::uint32_t columns : {0u, 1u, 3u, 4u, 13u, 64u, 128u, 130u, 479u, 512u})
    for (const std::size_t rows : {0, 1, 3, 300})
      for (const std::size_t gap : {0, 1, 4}) {
        const std::size_t in_stride = columns + gap, out_stride = columns + 2 * gap;
        const std::vector<float> in = RandomFloats(rows * in_stride, random);
        std::vector<float> out = RandomFloats(rows * out_stride, random);
        DeviceBuffer d_in = Upload(in), d_out = Upload(out);
        CopyColumns(stream(), rows, columns, d_in.as<float>(), in_stride, d_out.as<float>(), out_stride);
        CopyColumns(rows, columns, in.data(), in_stride, out.data(), out_stride);
        EXPECT_TRUE(SameBits(Download<float>(d_out), out));
        AddColumns(stream(), rows, columns, d_in.as<float>(), in_stride, d_out.as<float>(), out_stride);
        AddColumns(rows, columns, in.data(), in_stride, out.data(), out_stride);
        EXPECT_TRUE(SameBits(Download<float>(d_out), out));
      }
}

TEST_F(GpuModelOperationsTest, Bias) {
  SplitMix random(2);
  for (const std::size_t samples : {0, 1, 255, 8191, 8193, 65'537}) {
    const std::vector<float> rows = RandomFloats(9, random), grad_out = RandomFloats(samples, random);
    const std::vector<std::uint32_t> row = {5};
    std::vector<float> out = RandomFloats(samples, random), grad_rows = RandomFloats(9, random);
    DeviceBuffer d_rows = Upload(rows), d_row = Upload(row), d_out = Upload(out), d_grad_out = Upload(grad_out),
                 d_grad_rows = Upload(grad_rows);
    BiasForward(stream(), samples, d_rows.as<float>(), d_row.as<std::uint32_t>(), d_out.as<float>());
    BiasBackward(stream(), samples, d_grad_out.as<float>(), d_row.as<std::uint32_t>(), d_grad_rows.as<float>());
    BiasForward(samples, rows.data(), row.data(), out.data());
    BiasBackward(samples, grad_out.data(), row.data(), grad_rows.data());
    EXPECT_TRUE(SameBits(Download<float>(d_out), out));
    const std::vector<float> actual = Download<float>(d_grad_rows);
    for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(actual[i], grad_rows[i], 1e-6 * (1 + std::abs(grad_rows[i])));
  }
}

// Logits of which some gradients are subnormal.
std::vector<float> RandomLogits(std::size_t n, SplitMix& random) {
  std::vector<float> logits = RandomFloats(n, random, -30, 30);
  for (std::size_t i = 0; i < n; i += 53) logits[i] = float(-86 - 18 * random.Unit());
  for (std::size_t i = 0; i + 3 < n; i += 97) std::ranges::copy(std::vector{1000.0f, -1000.0f, 0.0f}, &logits[i]);
  return logits;
}

TEST_F(GpuModelOperationsTest, LossesRowByRow) {
  SplitMix random(3);
  for (const std::uint32_t classes : {1u, 2u, 7u, 8u, 10u, 37u, 1000u})
    for (const std::size_t n : {0, 1, 20, 20'001}) {
      if (n * classes > 2'000'000) continue;
      std::vector<float> logits = RandomLogits(n * classes, random);
      for (std::size_t i = 0; i < n; i += 3)
        std::fill_n(logits.begin() + std::ptrdiff_t(i * classes), classes / 2, 31.0f);
      std::vector<float> labels(n), grad = Poisoned(logits.size());
      for (float& label : labels) label = float(random.Below(classes));
      std::vector<double> losses(n, NAN);
      std::vector<std::uint32_t> correct(n, 7);
      DeviceBuffer d_logits = Upload(logits), d_labels = Upload(labels), d_grad = Upload(grad),
                   d_losses = Upload(losses), d_correct = Upload(correct);
      SoftmaxCrossEntropyByRow(stream(), n, classes, d_logits.as<float>(), d_labels.as<float>(), 0.5f,
                               d_grad.as<float>(), d_losses.as<double>(), d_correct.as<std::uint32_t>());
      SoftmaxCrossEntropyByRow(n, classes, logits.data(), labels.data(), 0.5f, grad.data(), losses.data(),
                               correct.data());
      EXPECT_TRUE(SameBits(Download<float>(d_grad), grad));
      EXPECT_EQ(Download<double>(d_losses), losses);
      EXPECT_EQ(Download<std::uint32_t>(d_correct), correct);
      SoftmaxCrossEntropyByRow(stream(), n, classes, d_logits.as<float>(), d_labels.as<float>(), 0.5f, nullptr,
                               d_losses.as<double>(), d_correct.as<std::uint32_t>());
      EXPECT_EQ(Download<double>(d_losses), losses);

      std::vector<float> binary = Poisoned(n);
      DeviceBuffer d_binary = Upload(binary);
      LogisticGradient(stream(), n, d_logits.as<float>(), d_labels.as<float>(), 0.25f, d_binary.as<float>());
      LogisticLoss(n, logits.data(), labels.data(), 0.25f, binary.data());
      EXPECT_TRUE(SameBits(Download<float>(d_binary), binary));
    }
}

// A NaN in a row, first or later, and infinities give the same numbers as on the CPU.
TEST_F(GpuModelOperationsTest, SoftmaxOfNonFiniteValues) {
  const std::vector<float> logits = {kPoison, 1, 2, 1, kPoison, 2, HUGE_VALF, 1, 2, -HUGE_VALF, 3, 3};
  const std::vector<float> classes = {0, 2, 0, 1};
  std::vector<float> grad = Poisoned(12);
  std::vector<double> losses(4);
  std::vector<std::uint32_t> correct(4, 9);
  DeviceBuffer d_logits = Upload(logits), d_classes = Upload(classes), d_grad = Upload(grad), d_losses = Upload(losses),
               d_correct = Upload(correct);
  SoftmaxCrossEntropyByRow(stream(), 4, 3, d_logits.as<float>(), d_classes.as<float>(), 0.5f, d_grad.as<float>(),
                           d_losses.as<double>(), d_correct.as<std::uint32_t>());
  SoftmaxCrossEntropyByRow(4, 3, logits.data(), classes.data(), 0.5f, grad.data(), losses.data(), correct.data());
  ExpectSameNumbers(Download<float>(d_grad), grad);
  EXPECT_EQ(Download<std::uint32_t>(d_correct), correct);
  const std::vector<double> on_device = Download<double>(d_losses);
  for (const std::size_t i : {0, 1, 2}) EXPECT_TRUE(std::isnan(losses[i]) && std::isnan(on_device[i])) << i;
  EXPECT_NEAR(losses[3], std::log(2), 1e-12);
  EXPECT_NEAR(on_device[3], std::log(2), 1e-12);
}

// Two arrays, the first in units of 8, and again without alignment to 16 bytes, which changes no bit.
TEST_F(GpuModelOperationsTest, ClippingWithoutTheHost) {
  SplitMix random(4);
  for (const std::size_t n : {1, 2, 1000, 600'003})
    for (const float norm_max : {0.0f, 0.5f, 1e6f}) {
      std::vector<float> a = RandomFloats(n, random), b = RandomFloats(77, random);
      const double norm = (SquaredNorm(n, a.data()) + SquaredNorm(77, b.data())) / 64;
      DeviceBuffer d_a = Upload(a), d_b = Upload(b), d_parts = Upload(std::vector<double>(kNormParts));
      DeviceBuffer d_factor = Upload(Poisoned(1));
      std::vector<float> moved = {kPoison};
      moved.insert(moved.end(), a.begin(), a.end());
      DeviceBuffer d_moved = Upload(moved), d_again = Upload(std::vector<double>(kNormParts));
      AddSquaredNorm(stream(), n, d_a.as<float>(), d_parts.as<double>());
      AddSquaredNorm(stream(), n, d_moved.as<float>() + 1, d_again.as<double>());
      EXPECT_EQ(Download<double>(d_again), Download<double>(d_parts));
      AddSquaredNorm(stream(), 77, d_b.as<float>(), d_parts.as<double>());
      ClipScale(stream(), d_parts.as<double>(), 8, norm_max, d_factor.as<float>());
      Scale(stream(), n, d_factor.as<float>(), d_a.as<float>());
      EXPECT_NEAR(Download<double>(d_parts)[0], norm * 64, 1e-9 * norm * 64);
      const float factor = ClipScale(norm, norm_max) / 8;
      const std::vector<float> actual = Download<float>(d_a);
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(actual[i], a[i] * factor, 1e-6 * std::abs(factor));
    }
}

TEST_F(GpuModelOperationsTest, ANormThatIsNotFiniteGivesNaN) {
  DeviceBuffer d_in = Upload(std::vector<float>{1, HUGE_VALF}), d_parts = Upload(std::vector<double>(kNormParts));
  DeviceBuffer d_factor = Upload(std::vector<float>{7});
  AddSquaredNorm(stream(), 2, d_in.as<float>(), d_parts.as<double>());
  ClipScale(stream(), d_parts.as<double>(), 1, 0.5f, d_factor.as<float>());
  EXPECT_TRUE(std::isnan(Download<float>(d_factor)[0]));
  EXPECT_FALSE(std::isfinite(Download<double>(d_parts)[0]));
}

TEST_F(GpuModelOperationsTest, PaddedMatrices) {
  SplitMix random(5);
  for (const auto& [rows, columns, padded_rows, padded_columns] :
       {std::array<std::size_t, 4>{3, 5, 3, 8}, {1, 1, 8, 1}, {130, 479, 192, 512}, {7, 64, 7, 64}}) {
    const std::size_t stride = columns + 1;
    const std::vector<float> in = RandomFloats(rows * stride, random);
    DeviceBuffer d_in = Upload(in);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      std::vector<float> padded(padded_rows * padded_columns, 0.0f);
      CopyColumns(rows, std::uint32_t(columns), in.data(), stride, padded.data(), padded_columns);
      DeviceBuffer d_padded = Upload(Poisoned(padded.size())), d_back = Upload(Poisoned(rows * columns));
      if (precision == Precision::kFp32) {
        PadMatrix(stream(), precision, rows, columns, d_in.as<float>(), stride, d_padded.as<float>(), padded_rows,
                  padded_columns);
        EXPECT_TRUE(SameBits(Download<float>(d_padded), padded));
        UnpadMatrix(stream(), precision, rows, columns, d_padded.as<float>(), padded_columns, d_back.as<float>());
      } else {
        PadMatrix(stream(), precision, rows, columns, d_in.as<float>(), stride, d_padded.as<std::uint16_t>(),
                  padded_rows, padded_columns);
        const std::vector<std::uint16_t> halves = Rounded(precision, &padded);
        std::vector<std::uint16_t> actual = Download<std::uint16_t>(d_padded);
        actual.resize(halves.size());
        EXPECT_EQ(actual, halves);
        UnpadMatrix(stream(), precision, rows, columns, d_padded.as<std::uint16_t>(), padded_columns,
                    d_back.as<float>());
      }
      std::vector<float> back = Poisoned(rows * columns);
      CopyColumns(rows, std::uint32_t(columns), padded.data(), padded_columns, back.data(), columns);
      EXPECT_TRUE(SameBits(Download<float>(d_back), back));
    }
  }
}

// The last layer of a network: 16-bit factors, and fp32 sums that are not rounded.
TEST_F(GpuModelOperationsTest, LayersOf16BitsWithFloatOutputs) {
  SplitMix random(6);
  for (const auto& [rows, in, out] : {std::array<std::size_t, 3>{1, 1, 1}, {70, 64, 8}, {33, 19, 5}})
    for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
      std::vector<float> x = RandomFloats(rows * in, random), w = RandomFloats(out * in, random);
      const std::vector<float> bias = RandomFloats(out, random);
      DeviceBuffer d_x = Upload(Rounded(precision, &x)), d_w = Upload(Rounded(precision, &w)), d_bias = Upload(bias);
      for (const bool relu : {false, true}) {
        DeviceBuffer d_y = Upload(Poisoned(rows * out));
        LinearForward(stream(), {rows, in, out, precision}, d_x.as<std::uint16_t>(), d_w.as<std::uint16_t>(),
                      d_bias.as<float>(), relu, d_y.as<float>());
        std::vector<double> expected;
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t o = 0; o < out; ++o) {
            double sum = double(bias[o]);
            for (std::size_t i = 0; i < in; ++i) sum += double(x[r * in + i]) * double(w[o * in + i]);
            expected.push_back(relu && sum < 0 ? 0 : sum);
          }
        ExpectNear(Download<float>(d_y), expected, 1e-5);
      }
    }
}

TEST_F(GpuModelOperationsTest, PinnedMemory) {
  auto pinned = PinnedBuffer::Allocate(stream(), 4096, "a test's array");
  ASSERT_TRUE(pinned.has_value()) << pinned.error().message;
  std::fill_n(pinned->as<float>(), 1024, 3.0f);
  DeviceBuffer device = Upload(Poisoned(1024));
  CopyToDevice(stream(), pinned->data(), 4096, device.data());
  EXPECT_EQ(Download<float>(device), std::vector<float>(1024, 3.0f));
  PinnedBuffer moved = std::move(*pinned);
  EXPECT_EQ(moved.size(), 4096u);
  EXPECT_EQ(pinned->size(), 0u);
}

}  // namespace
}  // namespace tarn::kernels

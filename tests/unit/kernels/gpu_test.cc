// Shows that operations on a GPU have the bits of their CPU implementations, which other tests compare with float64:
// every element is rounded in the same way. Odd, empty and large sizes; outputs are poisoned first. Skipped, with the
// reason, if there is no GPU.
#include <array>
#include <functional>

#include "kernels/convert.h"
#include "kernels/cross.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/interaction.h"
#include "kernels/optimizer.h"
#include "kernels/quantize.h"
#include "kernels/rows.h"
#include "tests/unit/kernels/gpu_test_util.h"
#include "tests/unit/kernels/optimizer_cases.h"

namespace tarn::kernels {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 3, 4, 5, 255, 4096, 1'000'003};

class GpuTest : public GpuFixture {
 protected:
  // The same operation on the CPU and on the GPU, in place on `inout` with one more input.
  void ExpectSame(const std::vector<float>& in, std::vector<float> inout,
                  const std::function<void(const float*, float*)>& cpu,
                  const std::function<void(const float*, float*)>& gpu) {
    DeviceBuffer device_in = Upload(in), device_out = Upload(inout);
    gpu(device_in.as<float>(), device_out.as<float>());
    const std::vector<float> result = Download<float>(device_out);
    cpu(in.data(), inout.data());
    EXPECT_TRUE(SameBits(inout, result)) << inout.size() << " elements";
  }
};

TEST_F(GpuTest, FlatArrays) {
  SplitMix random(1);
  Stream& s = stream();
  for (const std::size_t n : kSizes) {
    const std::vector<float> in = RandomFloats(n, random), out = RandomFloats(n, random);
    ExpectSame(in, out, [&](auto a, auto b) { Add(n, a, b); }, [&](auto a, auto b) { Add(s, n, a, b); });
    ExpectSame(in, out, [&](auto, auto b) { Scale(n, 1.7f, b); }, [&](auto, auto b) { Scale(s, n, 1.7f, b); });
    ExpectSame(in, out, [&](auto, auto b) { Relu(n, b); }, [&](auto, auto b) { Relu(s, n, b); });
    ExpectSame(in, Poisoned(n), [&](auto, auto b) { Fill(n, 2.5f, b); }, [&](auto, auto b) { Fill(s, n, 2.5f, b); });
    std::vector<float> y = in;
    Relu(n, y.data());
    ExpectSame(
        y, out, [&](auto a, auto b) { ReluBackward(n, a, b); }, [&](auto a, auto b) { ReluBackward(s, n, a, b); });
  }
}

TEST_F(GpuTest, UnalignedArrays) {
  SplitMix random(2);
  Stream& s = stream();
  const std::vector<float> in = RandomFloats(1001, random), out = RandomFloats(1001, random);
  const auto add = [&](auto&... on) { return [&](auto a, auto b) { Add(on..., 1000, a + 1, b + 1); }; };
  const auto add_in = [&](auto&... on) { return [&](auto a, auto b) { Add(on..., 1000, a + 1, b); }; };
  const auto relu = [&](auto&... on) { return [&](auto, auto b) { Relu(on..., 1000, b + 1); }; };
  const auto fill = [&](auto&... on) { return [&](auto, auto b) { Fill(on..., 999, 3.0f, b + 1); }; };
  ExpectSame(in, out, add(), add(s));
  ExpectSame(in, out, add_in(), add_in(s));
  ExpectSame(in, out, relu(), relu(s));
  ExpectSame(in, out, fill(), fill(s));
}

TEST_F(GpuTest, CrossLayer) {
  SplitMix random(3);
  for (const std::size_t shift : {0, 1})
    for (const std::size_t size : kSizes) {
      const std::size_t n = size < shift ? 0 : size - shift;
      const std::vector<float> x0 = RandomFloats(size, random), y = RandomFloats(size, random);
      const std::vector<float> x = RandomFloats(size, random);
      DeviceBuffer d0 = Upload(x0), dy = Upload(y), dx = Upload(x), out = Upload(Poisoned(n)), gy = Upload(Poisoned(n));
      std::vector<float> expected = Poisoned(n), expected_y = Poisoned(n), expected_x0 = x;
      CrossForward(stream(), n, d0.as<float>() + shift, dy.as<float>(), dx.as<float>(), out.as<float>());
      CrossBackward(stream(), n, d0.as<float>(), dy.as<float>() + shift, out.as<float>(), gy.as<float>(),
                    dx.as<float>() + shift);
      CrossForward(n, x0.data() + shift, y.data(), x.data(), expected.data());
      CrossBackward(n, x0.data(), y.data() + shift, expected.data(), expected_y.data(), expected_x0.data() + shift);
      EXPECT_TRUE(SameBits(expected, Download<float>(out)));
      EXPECT_TRUE(SameBits(expected_y, Download<float>(gy)));
      EXPECT_TRUE(SameBits(expected_x0, Download<float>(dx)));
    }
}

TEST_F(GpuTest, SixteenBitFormats) {
  SplitMix random(4);
  std::vector<float> in = RandomFloats(100'000, random);
  for (std::size_t i = 0; i < 50'000; ++i) in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random.Next()));
  using Narrow = void (*)(std::size_t, const float*, std::uint16_t*);
  using Widen = void (*)(std::size_t, const std::uint16_t*, float*);
  using GpuNarrow = void (*)(Stream&, std::size_t, const float*, std::uint16_t*);
  using GpuWiden = void (*)(Stream&, std::size_t, const std::uint16_t*, float*);
  const auto check = [&](Narrow narrow, Widen widen, GpuNarrow gpu_narrow, GpuWiden gpu_widen) {
    for (const std::size_t shift : {0, 1})
      for (const std::size_t n : {0, 1, 7, 8, 9, 99'999}) {
        std::vector<std::uint16_t> halves(n);
        std::vector<float> expected = in;
        narrow(n, in.data() + shift, halves.data());
        widen(n, halves.data(), expected.data() + shift);
        DeviceBuffer device = Upload(in), narrowed = Upload(std::vector<std::uint16_t>(n + shift, 0xdead));
        gpu_narrow(stream(), n, device.as<float>() + shift, narrowed.as<std::uint16_t>() + shift);
        gpu_widen(stream(), n, narrowed.as<std::uint16_t>() + shift, device.as<float>() + shift);
        ExpectSameNumbers(Download<float>(device), expected);
      }
  };
  check(FloatToBf16, Bf16ToFloat, FloatToBf16, Bf16ToFloat);
  check(FloatToFp16, Fp16ToFloat, FloatToFp16, Fp16ToFloat);
}

TEST_F(GpuTest, Int8Rows) {
  SplitMix random(5);
  for (const std::uint32_t dim : {1u, 5u, 64u, 100u}) {
    std::vector<float> in = RandomFloats(300 * dim, random);
    std::fill_n(in.begin(), dim, 0.0f);          // a row of zeros
    std::fill_n(in.begin() + dim, dim, 1e-44f);  // too small for a scale
    in[2 * dim] = HUGE_VALF;                     // a row that is not finite
    const std::size_t bytes = 300 * Int8RowBytes(dim);
    std::vector<std::byte> expected(bytes);
    EncodeInt8Rows(dim, 300, in.data(), expected.data());
    DeviceBuffer device = Upload(in), encoded = Upload(std::vector<std::byte>(bytes, std::byte{0x5a}));
    EncodeInt8Rows(stream(), dim, 300, device.as<float>(), encoded.as<std::byte>());
    EXPECT_EQ(Download<std::byte>(encoded), expected);
    DecodeInt8Rows(stream(), dim, 300, encoded.as<std::byte>(), device.as<float>());
    std::vector<float> decoded(in.size());
    DecodeInt8Rows(dim, 300, expected.data(), decoded.data());
    ExpectSameNumbers(Download<float>(device), decoded);
  }
}

// Rows of all widths, aligned to 16 bytes and not.
struct RowsCase {
  std::uint32_t dim;
  std::size_t samples, shift;
};

std::vector<RowsCase> RowsCases() {
  std::vector<RowsCase> cases;
  for (const std::uint32_t dim : {1u, 3u, 4u, 8u, 16u, 20u, 64u, 128u, 130u, 260u})
    for (const std::size_t samples : {0, 1, 2, 203})
      for (const std::size_t shift : {0, 1}) cases.push_back({dim, samples, shift});
  return cases;
}

TEST_F(GpuTest, RowsByIndex) {
  SplitMix random(6);
  constexpr std::uint32_t kRows = 1000;
  for (const auto& [dim, n, shift] : RowsCases()) {
    const std::vector<float> in = RandomFloats(kRows * dim + shift, random);
    std::vector<std::uint32_t> index = RandomIndices(n, kRows, random);
    std::vector<float> gathered = Poisoned(n * dim + shift), scattered = Poisoned(kRows * dim + shift);
    DeviceBuffer d_in = Upload(in), d_index = Upload(index), d_gathered = Upload(gathered);
    DeviceBuffer d_scattered = Upload(scattered);
    GatherByIndex(stream(), dim, n, d_in.as<float>() + shift, d_index.as<std::uint32_t>(),
                  d_gathered.as<float>() + shift);
    GatherByIndex(dim, n, in.data() + shift, index.data(), gathered.data() + shift);
    EXPECT_TRUE(SameBits(gathered, Download<float>(d_gathered))) << n << " x " << dim;
    for (std::size_t i = 0; i < n; ++i) index[i] = std::uint32_t(kRows - 1 - 3 * i);  // distinct: the order is free
    DeviceBuffer d_distinct = Upload(index);
    ScatterByIndex(stream(), dim, n, d_in.as<float>() + shift, d_distinct.as<std::uint32_t>(),
                   d_scattered.as<float>() + shift);
    ScatterByIndex(dim, n, in.data() + shift, index.data(), scattered.data() + shift);
    EXPECT_TRUE(SameBits(scattered, Download<float>(d_scattered))) << n << " x " << dim;
  }
}

TEST_F(GpuTest, ConcatForward) {
  SplitMix random(7);
  constexpr std::uint32_t kRows = 1000;
  for (const auto& [dim, samples, shift] : RowsCases())
    for (const std::uint32_t fields : {0u, 1u, 5u}) {
      const std::vector<float> rows = RandomFloats(kRows * dim + shift, random);
      const std::vector<std::uint32_t> inverse = RandomIndices(samples * fields, kRows, random);
      const std::size_t width = std::size_t{fields} * dim + 4 - shift;
      std::vector<float> out(samples * width, 7.0f);
      DeviceBuffer d_rows = Upload(rows), d_inverse = Upload(inverse), d_out = Upload(out);
      EmbeddingConcatForward(stream(), samples, fields, dim, d_rows.as<float>() + shift, d_inverse.as<std::uint32_t>(),
                             d_out.as<float>(), width);
      EmbeddingConcatForward(samples, fields, dim, rows.data() + shift, inverse.data(), out.data(), width);
      EXPECT_TRUE(SameBits(out, Download<float>(d_out))) << samples << " x " << fields << " x " << dim;
    }
}

TEST_F(GpuTest, BagForward) {
  SplitMix random(8);
  constexpr std::uint32_t kRows = 1000;
  for (const auto& [dim, samples, shift] : RowsCases())
    for (const bool weighted : {false, true}) {
      const std::vector<float> rows = RandomFloats(kRows * dim + shift, random);
      std::vector<std::uint32_t> offsets = RandomOffsets(samples, 9, random);
      for (std::uint32_t& offset : offsets) offset += 3;  // a slice of a batch
      const std::vector<std::uint32_t> inverse = RandomIndices(offsets.back(), kRows, random);
      const std::vector<float> weights = RandomFloats(inverse.size(), random);
      std::vector<float> out = Poisoned(samples * dim);
      DeviceBuffer d_rows = Upload(rows), d_inverse = Upload(inverse), d_offsets = Upload(offsets);
      DeviceBuffer d_weights = Upload(weights), d_out = Upload(out);
      EmbeddingBagForward(stream(), samples, dim, d_rows.as<float>() + shift, d_inverse.as<std::uint32_t>(),
                          d_offsets.as<std::uint32_t>(), weighted ? d_weights.as<float>() : nullptr, d_out.as<float>());
      EmbeddingBagForward(samples, dim, rows.data() + shift, inverse.data(), offsets.data(),
                          weighted ? weights.data() : nullptr, out.data());
      EXPECT_TRUE(SameBits(out, Download<float>(d_out))) << samples << " x " << dim;
    }
}

TEST_F(GpuTest, Interaction) {
  SplitMix random(9);
  using Case = std::array<std::size_t, 4>;  // samples, vectors, dim, shift
  for (const auto& [samples, vectors, dim, shift] :
       {Case{0, 27, 64, 0}, Case{1, 1, 8, 0}, Case{70, 2, 1, 0}, Case{3, 3, 4, 0}, Case{3, 4, 16, 0}, Case{3, 5, 3, 0},
        Case{3, 9, 20, 0}, Case{3, 10, 130, 0}, Case{70, 27, 64, 0}, Case{9, 27, 64, 1}, Case{70, 27, 128, 0},
        Case{9, 27, 13, 1}, Case{3, 28, 8, 0}, Case{3, 29, 8, 0}, Case{3, 90, 20, 0}, Case{5, 40, 512, 0},
        Case{5, 40, 512, 1}, Case{3, 130, 512, 0}, Case{3, 130, 512, 1}}) {
    const auto n = std::uint32_t(vectors), width = std::uint32_t(dim);
    const std::size_t out_floats = samples * InteractionWidth(n, width);
    const std::vector<float> in = RandomFloats(samples * vectors * dim + shift, random);
    const std::vector<float> grad = RandomFloats(out_floats + shift, random);
    std::vector<float> out = Poisoned(out_floats + shift), grad_in = Poisoned(in.size());
    DeviceBuffer d_in = Upload(in), d_out = Upload(out), d_grad = Upload(grad), d_grad_in = Upload(grad_in);
    InteractionForward(stream(), samples, n, width, d_in.as<float>() + shift, d_out.as<float>() + shift);
    InteractionBackward(stream(), samples, n, width, d_in.as<float>() + shift, d_grad.as<float>() + shift,
                        d_grad_in.as<float>() + shift);
    InteractionForward(samples, n, width, in.data() + shift, out.data() + shift);
    InteractionBackward(samples, n, width, in.data() + shift, grad.data() + shift, grad_in.data() + shift);
    EXPECT_TRUE(SameBits(out, Download<float>(d_out))) << vectors << " x " << dim;
    EXPECT_TRUE(SameBits(grad_in, Download<float>(d_grad_in))) << vectors << " x " << dim;
  }
}

// Sums just below zero are -0; padding of the vectors must not make them +0.
TEST_F(GpuTest, InteractionNextToZero) {
  constexpr float kMin = 0x1p-126f;
  for (const std::uint32_t dim : {2u, 3u, 4u, 5u, 7u}) {
    std::vector<float> in(2 * dim, -0.0f), out = Poisoned(InteractionWidth(2, dim));
    in[0] = kMin, in[1] = 1.5f * kMin, in[dim] = 1.0f, in[dim + 1] = -1.0f;
    DeviceBuffer d_in = Upload(in), d_out = Upload(out);
    InteractionForward(stream(), 1, 2, dim, d_in.as<float>(), d_out.as<float>());
    InteractionForward(1, 2, dim, in.data(), out.data());
    EXPECT_TRUE(SameBits(out, Download<float>(d_out))) << dim;
    if (dim == 2) {
      EXPECT_TRUE(std::signbit(out[2]));
    }
  }
}

// A rate of 0 decays nothing: -0 becomes +0, as on the CPU.
TEST_F(GpuTest, AdamWWithoutDecay) {
  OptimizerSpec spec{.kind = "adamw"};
  spec.learning_rate = 0;
  spec.options["weight_decay"] = 0.1f;
  std::vector<float> row(4 + SlotFloats(spec.kind, 4), 0.0f);
  row[0] = -0.0f, row[1] = 1.0f, row[2] = HUGE_VALF;
  const std::vector<float> gradients(4, 1.0f);
  DeviceBuffer d_row = Upload(row), d_gradients = Upload(gradients);
  DeviceBuffer d_values = Upload(std::vector<float*>{d_row.as<float>()});
  DeviceBuffer d_slots = Upload(std::vector<float*>{d_row.as<float>() + 4});
  ApplyOptimizer(stream(), spec, Clock(0), 4, 1, d_values.as<float*>(), d_slots.as<float*>(), d_gradients.as<float>());
  float *values = row.data(), *slots = row.data() + 4;
  ApplyOptimizer(spec, Clock(0), 4, 1, &values, &slots, gradients.data());
  ExpectSameNumbers(Download<float>(d_row), row);
}

// Every rule and every way to condition a gradient, over several steps, rows on 16 bytes (`unit` 4, where the width
// allows it) or packed, so that they begin anywhere.
TEST_F(GpuTest, Optimizers) {
  SplitMix random(10);
  for (const auto& [name, spec] : OptimizerCases())
    for (const std::uint32_t dim : {1u, 3u, 4u, 7u, 8u, 16u, 36u, 64u, 128u, 130u, 260u})
      for (const std::uint32_t unit : {1u, 4u}) {
        const std::size_t n = dim == 64 ? 1003 : random.Below(40);
        const std::size_t floats = (dim + SlotFloats(spec.kind, dim) + unit - 1) / unit * unit;
        std::vector<float> rows = RandomFloats(n * floats, random);
        for (std::size_t i = 0; i < n; ++i) InitSlots(spec, dim, rows.data() + i * floats + dim);
        DeviceBuffer device = Upload(rows);
        std::vector<float*> values, slots, d_values, d_slots;
        for (std::size_t i = 0; i < n; ++i) {
          values.push_back(rows.data() + i * floats);
          slots.push_back(values.back() + dim);
          d_values.push_back(device.as<float>() + i * floats);
          d_slots.push_back(d_values.back() + dim);
        }
        DeviceBuffer value_pointers = Upload(d_values), slot_pointers = Upload(d_slots);
        for (std::uint64_t clock = 0; clock < 3; ++clock) {
          const std::vector<float> gradients = RandomFloats(n * dim, random);
          DeviceBuffer d_gradients = Upload(gradients);
          ApplyOptimizer(stream(), spec, Clock(clock), dim, n, value_pointers.as<float*>(), slot_pointers.as<float*>(),
                         d_gradients.as<float>());
          ApplyOptimizer(spec, Clock(clock), dim, n, values.data(), slots.data(), gradients.data());
        }
        EXPECT_TRUE(SameBits(rows, Download<float>(device))) << name << ", dim " << dim << ", " << n << " rows";
      }
}

TEST_F(GpuTest, NotEnoughMemoryIsAnError) {
  const auto buffer = DeviceBuffer::Allocate(stream(), std::size_t{1} << 50, "a planet");
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::kIo);
  EXPECT_NE(buffer.error().message.find("a planet: 1125899906842624 bytes asked for"), std::string::npos)
      << buffer.error().message;
}

TEST(GpuErrorTest, TheErrorNamesAMissingGpu) {
  const auto stream = Stream::Make(1000);
  ASSERT_FALSE(stream.has_value());
  EXPECT_NE(stream.error().message.find("GPU 1000"), std::string::npos) << stream.error().message;
}

}  // namespace
}  // namespace tarn::kernels

// Shows that the operations on a GPU give what their CPU implementations give, which the other tests here compare with
// float64: to the bit, since every element is rounded alike. Odd sizes, empty ones and large ones; outputs poisoned
// first. Skipped, with the reason, where there is no GPU.
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

TEST_F(GpuTest, ArraysThatAreNotAligned) {
  SplitMix random(2);
  const std::vector<float> in = RandomFloats(1001, random), out = RandomFloats(1001, random);
  ExpectSame(
      in, out, [&](auto a, auto b) { Add(1000, a + 1, b + 1); },
      [&](auto a, auto b) { Add(stream(), 1000, a + 1, b + 1); });
}

TEST_F(GpuTest, CrossLayer) {
  SplitMix random(3);
  for (const std::size_t n : kSizes) {
    const std::vector<float> x0 = RandomFloats(n, random), y = RandomFloats(n, random), x = RandomFloats(n, random);
    DeviceBuffer d0 = Upload(x0), dy = Upload(y), dx = Upload(x), out = Upload(Poisoned(n)), gy = Upload(Poisoned(n));
    std::vector<float> expected = Poisoned(n), expected_y = Poisoned(n), expected_x0 = x;
    CrossForward(stream(), n, d0.as<float>(), dy.as<float>(), dx.as<float>(), out.as<float>());
    CrossBackward(stream(), n, d0.as<float>(), dy.as<float>(), out.as<float>(), gy.as<float>(), dx.as<float>());
    CrossForward(n, x0.data(), y.data(), x.data(), expected.data());
    CrossBackward(n, x0.data(), y.data(), expected.data(), expected_y.data(), expected_x0.data());
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
    std::vector<std::uint16_t> halves(in.size());
    std::vector<float> expected(in.size());
    narrow(in.size(), in.data(), halves.data());
    widen(in.size(), halves.data(), expected.data());
    DeviceBuffer device = Upload(in), narrowed = Upload(std::vector<std::uint16_t>(in.size(), 0xdead));
    gpu_narrow(stream(), in.size(), device.as<float>(), narrowed.as<std::uint16_t>());
    gpu_widen(stream(), in.size(), narrowed.as<std::uint16_t>(), device.as<float>());
    ExpectSameNumbers(Download<float>(device), expected);
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
    in[2 * dim] = HUGE_VALF;                     // nothing to be told of this row
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

TEST_F(GpuTest, RowsAndEmbeddings) {
  SplitMix random(6);
  constexpr std::uint32_t kRows = 1000;
  for (const std::uint32_t dim : {1u, 3u, 16u, 64u, 128u}) {
    const std::size_t samples = 200;
    const std::uint32_t fields = 5;
    const std::vector<float> rows = RandomFloats(kRows * dim, random);
    const std::vector<std::uint32_t> inverse = RandomIndices(samples * fields, kRows, random);
    std::vector<std::uint32_t> offsets(samples + 1, 0);
    for (std::size_t s = 0; s < samples; ++s)
      offsets[s + 1] = std::min<std::uint32_t>(offsets[s] + std::uint32_t(random.Below(9)), samples * fields);
    const std::vector<float> weights = RandomFloats(inverse.size(), random);
    DeviceBuffer d_rows = Upload(rows), d_inverse = Upload(inverse), d_offsets = Upload(offsets);
    DeviceBuffer d_weights = Upload(weights);
    const std::size_t width = fields * dim + 4;
    std::vector<float> concat(samples * width, 7.0f), bags = Poisoned(samples * dim);
    DeviceBuffer d_concat = Upload(concat), d_bags = Upload(bags);
    EmbeddingConcatForward(stream(), samples, fields, dim, d_rows.as<float>(), d_inverse.as<std::uint32_t>(),
                           d_concat.as<float>(), width);
    EmbeddingConcatForward(samples, fields, dim, rows.data(), inverse.data(), concat.data(), width);
    EXPECT_TRUE(SameBits(concat, Download<float>(d_concat)));
    for (const bool weighted : {false, true}) {
      EmbeddingBagForward(stream(), samples, dim, d_rows.as<float>(), d_inverse.as<std::uint32_t>(),
                          d_offsets.as<std::uint32_t>(), weighted ? d_weights.as<float>() : nullptr,
                          d_bags.as<float>());
      EmbeddingBagForward(samples, dim, rows.data(), inverse.data(), offsets.data(),
                          weighted ? weights.data() : nullptr, bags.data());
      EXPECT_TRUE(SameBits(bags, Download<float>(d_bags)));
    }
    std::vector<float> gathered = Poisoned(inverse.size() * dim);
    DeviceBuffer d_gathered = Upload(gathered);
    GatherByIndex(stream(), dim, inverse.size(), d_rows.as<float>(), d_inverse.as<std::uint32_t>(),
                  d_gathered.as<float>());
    GatherByIndex(dim, inverse.size(), rows.data(), inverse.data(), gathered.data());
    EXPECT_TRUE(SameBits(gathered, Download<float>(d_gathered)));
  }
}

TEST_F(GpuTest, Interaction) {
  SplitMix random(7);
  for (const auto& [vectors, dim] : {std::pair{1u, 8u}, {2u, 1u}, {27u, 64u}, {27u, 128u}, {40u, 512u}}) {
    const std::size_t samples = 70, width = InteractionWidth(vectors, dim);
    const std::vector<float> in = RandomFloats(samples * vectors * dim, random);
    const std::vector<float> grad = RandomFloats(samples * width, random);
    std::vector<float> out = Poisoned(samples * width), grad_in = Poisoned(in.size());
    DeviceBuffer d_in = Upload(in), d_out = Upload(out), d_grad = Upload(grad), d_grad_in = Upload(grad_in);
    InteractionForward(stream(), samples, vectors, dim, d_in.as<float>(), d_out.as<float>());
    InteractionBackward(stream(), samples, vectors, dim, d_in.as<float>(), d_grad.as<float>(), d_grad_in.as<float>());
    InteractionForward(samples, vectors, dim, in.data(), out.data());
    InteractionBackward(samples, vectors, dim, in.data(), grad.data(), grad_in.data());
    EXPECT_TRUE(SameBits(out, Download<float>(d_out))) << vectors << " x " << dim;
    EXPECT_TRUE(SameBits(grad_in, Download<float>(d_grad_in))) << vectors << " x " << dim;
  }
}

// Every rule and every way to condition a gradient, over several steps.
TEST_F(GpuTest, Optimizers) {
  SplitMix random(8);
  constexpr std::size_t kRows = 500;
  for (const auto& [name, spec] : OptimizerCases())
    for (const std::uint32_t dim : {1u, 7u, 64u}) {
      const std::uint32_t floats = dim + SlotFloats(spec.kind, dim);
      std::vector<float> rows = RandomFloats(kRows * floats, random);
      for (std::size_t i = 0; i < kRows; ++i) InitSlots(spec, dim, rows.data() + i * floats + dim);
      DeviceBuffer device = Upload(rows);
      std::vector<float*> values, slots, d_values, d_slots;
      for (std::size_t i = 0; i < kRows; ++i) {
        values.push_back(rows.data() + i * floats);
        slots.push_back(values.back() + dim);
        d_values.push_back(device.as<float>() + i * floats);
        d_slots.push_back(d_values.back() + dim);
      }
      DeviceBuffer value_pointers = Upload(d_values), slot_pointers = Upload(d_slots);
      for (std::uint64_t clock = 0; clock < 3; ++clock) {
        const std::vector<float> gradients = RandomFloats(kRows * dim, random);
        DeviceBuffer d_gradients = Upload(gradients);
        ApplyOptimizer(stream(), spec, Clock(clock), dim, kRows, value_pointers.as<float*>(),
                       slot_pointers.as<float*>(), d_gradients.as<float>());
        ApplyOptimizer(spec, Clock(clock), dim, kRows, values.data(), slots.data(), gradients.data());
      }
      EXPECT_TRUE(SameBits(rows, Download<float>(device))) << name << ", dim " << dim;
    }
}

TEST_F(GpuTest, NotEnoughMemoryIsAnError) {
  const auto buffer = DeviceBuffer::Allocate(stream(), std::size_t{1} << 50, "a planet");
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::kIo);
  EXPECT_NE(buffer.error().message.find("a planet: 1125899906842624 bytes asked for"), std::string::npos)
      << buffer.error().message;
}

TEST(GpuErrorTest, AGpuThatIsNotThereIsNamed) {
  const auto stream = Stream::Make(1000);
  ASSERT_FALSE(stream.has_value());
  EXPECT_NE(stream.error().message.find("GPU 1000"), std::string::npos) << stream.error().message;
}

}  // namespace
}  // namespace tarn::kernels

// Shows that the array conversions give the bits of scalar_half.h for every 16-bit pattern and for floats of every
// kind, on every instruction set, at any alignment of the bytes.
#include "kernels/convert.h"

#include "tests/unit/kernels/kernel_test_util.h"
#include "tests/unit/kernels/scalar_half.h"

namespace tarn::kernels {
namespace {

float FromBits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// All exponents with random fractions, all neighbours of ties and limits, infinities and NaNs.
std::vector<float> HardFloats() {
  SplitMix random(1);
  std::vector<float> out;
  for (std::uint32_t half = 0; half < 0x10000; half += 7)
    for (const float v : {FloatFromFp16(std::uint16_t(half)), FloatFromBf16(std::uint16_t(half))})
      for (const std::uint32_t delta : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffffffu})
        out.push_back(FromBits(std::bit_cast<std::uint32_t>(v) + delta));
  for (int i = 0; i < 100000; ++i) out.push_back(FromBits(std::uint32_t(random.Next())));
  return out;
}

TEST(ConvertTest, NarrowingMatchesTheScalarFunctions) {
  const std::vector<float> in = HardFloats();
  ForEachTarget([&](const char* name) {
    std::vector<std::uint16_t> bf16(in.size(), 0xdead), fp16(in.size(), 0xdead);
    FloatToBf16(in.size(), in.data(), bf16.data());
    FloatToFp16(in.size(), in.data(), fp16.data());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(in[i]);
      ASSERT_EQ(bf16[i], Bf16FromFloat(in[i])) << name << " " << std::hex << bits;
      ASSERT_EQ(fp16[i], Fp16FromFloat(in[i])) << name << " " << std::hex << bits;
    }
  });
}

TEST(ConvertTest, RoundingEqualsNarrowingAndWidening) {
  const std::vector<float> in = HardFloats();
  ForEachTarget([&](const char* name) {
    std::vector<float> out = Poisoned(in.size());
    RoundToBf16(in.size(), in.data(), out.data());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const float expected = FloatFromBf16(Bf16FromFloat(in[i]));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(expected))
          << name << " " << std::hex << std::bit_cast<std::uint32_t>(in[i]);
    }
  });
}

TEST(ConvertTest, WideningIsExactForEveryPattern) {
  std::vector<std::uint16_t> in(0x10000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::uint16_t(i);
  ForEachTarget([&](const char* name) {
    std::vector<float> bf16 = Poisoned(in.size()), fp16 = Poisoned(in.size());
    Bf16ToFloat(in.size(), in.data(), bf16.data());
    Fp16ToFloat(in.size(), in.data(), fp16.data());
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(bf16[i]), std::bit_cast<std::uint32_t>(FloatFromBf16(in[i]))) << name;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(fp16[i]), std::bit_cast<std::uint32_t>(FloatFromFp16(in[i])))
          << name << " " << std::hex << i;
    }
  });
}

TEST(ConvertTest, FindsTheFirstValueThatOverflowsFp16) {
  const std::vector<float> in = HardFloats();
  ForEachTarget([&](const char* name) {
    for (const float v : in) {
      const bool beyond = std::isfinite(v) && std::isinf(FloatFromFp16(Fp16FromFloat(v)));
      ASSERT_EQ(FirstBeyondFp16(1, &v), beyond ? 0u : 1u) << name << " " << v;
    }
    EXPECT_EQ(FirstBeyondFp16(0, nullptr), 0u);
    for (const std::size_t at : {0, 7, 8, 30, 99}) {
      std::vector<float> values(100, 65519.0f);
      values[20] = HUGE_VALF;
      EXPECT_EQ(FirstBeyondFp16(100, values.data()), 100u) << name;
      values[at] = -65520.0f;
      values[99] = 1e30f;
      EXPECT_EQ(FirstBeyondFp16(100, values.data()), at) << name;
    }
  });
}

TEST(ConvertTest, RoundsTiesToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(Bf16FromFloat(1.0f + 0x1p-8f), 0x3f80);  // halfway between 1 and 1 + 2^-7: the even one
  EXPECT_EQ(Bf16FromFloat(1.0f + 0x3p-8f), 0x3f82);
  const std::vector<float> in = {65504.0f, 65519.0f, 65520.0f, -1e30f, 0x1p-24f, 0x1p-25f, -0.0f};
  std::vector<std::uint16_t> out(in.size());
  FloatToFp16(in.size(), in.data(), out.data());
  EXPECT_EQ(out, (std::vector<std::uint16_t>{0x7bff, 0x7bff, 0x7c00, 0xfc00, 1, 0, 0x8000}));
}

TEST(ConvertTest, BytesAtAnyAlignmentAndLength) {
  SplitMix random(2);
  for (const auto codec : {ValueCodec::kFp32, ValueCodec::kBf16, ValueCodec::kFp16})
    for (const std::size_t n : {0, 1, 3, 1023, 1024, 1025, 5000})
      for (const std::size_t shift : {0, 1, 2, 3}) {
        const std::vector<float> in = RandomFloats(n, random, -100, 100);
        std::vector<std::byte> bytes(n * CodecRowBytes(codec, 1) + shift + 1, std::byte{0xab});
        EncodeValues(codec, n, in.data(), bytes.data() + shift);
        EXPECT_EQ(bytes.back(), std::byte{0xab}) << "written past the end";
        std::vector<float> back = Poisoned(n);
        DecodeValues(codec, n, bytes.data() + shift, back.data());
        for (std::size_t i = 0; i < n; ++i) {
          const float expected = codec == ValueCodec::kFp32   ? in[i]
                                 : codec == ValueCodec::kBf16 ? FloatFromBf16(Bf16FromFloat(in[i]))
                                                              : FloatFromFp16(Fp16FromFloat(in[i]));
          ASSERT_EQ(back[i], expected);
        }
      }
}

}  // namespace
}  // namespace tarn::kernels

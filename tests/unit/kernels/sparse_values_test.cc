// Shows that nonzero values are decoded with every bit, that the encoded size is as computed, and that invalid bytes
// are refused with the reason.
#include "kernels/sparse_values.h"

#include <bit>

#include "tests/unit/kernels/kernel_test_util.h"

namespace tarn::kernels {
namespace {

std::vector<std::byte> Encoded(const std::vector<float>& in) {
  std::vector<std::byte> bytes(SparseBytes(in.size(), in.data()) + 1, std::byte{0x5a});
  const std::byte* end = EncodeSparse(in.size(), in.data(), bytes.data());
  EXPECT_EQ(end, bytes.data() + bytes.size() - 1) << "as many bytes as were announced";
  EXPECT_EQ(bytes.back(), std::byte{0x5a}) << "wrote beyond its end";
  bytes.pop_back();
  EXPECT_LE(bytes.size(), SparseBytesMax(in.size()));
  EXPECT_GE(bytes.size(), kSparseBytesMin);
  return bytes;
}

void ExpectThrough(const std::vector<float>& in) {
  const std::vector<std::byte> bytes = Encoded(in);
  std::vector<float> out = Poisoned(in.size());
  const Status status = DecodeSparse(in.size(), bytes, out.data());
  ASSERT_TRUE(status) << status.error().message;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto expected = in[i] == 0 ? 0u : std::bit_cast<std::uint32_t>(in[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), expected) << "element " << i;
  }
}

TEST(SparseValuesTest, ValuesKeepEveryBit) {
  SplitMix random(1);
  for (const std::size_t n : {0, 1, 2, 7, 1000, 70'000})
    for (const double share : {0.0, 0.001, 0.1, 1.0}) {
      std::vector<float> in(n, 0.0f);
      for (float& v : in)
        if (random.Chance(share)) v = float(random.Unit()) - 0.5f;
      ExpectThrough(in);
    }
  ExpectThrough({-0.0f, kPoison, HUGE_VALF, 1e-45f, 0.0f, -3e38f, -HUGE_VALF, -0.0f});
}

// A gap of each encoded length.
TEST(SparseValuesTest, GapsOfEveryLengthAreEncoded) {
  for (const std::size_t at : {127, 128, 16'383, 16'384, 2'097'151, 2'097'152}) {
    std::vector<float> in(at + 3, 0.0f);
    in[at] = 1.0f;
    in[at + 2] = 2.0f;
    ExpectThrough(in);
  }
}

TEST(SparseValuesTest, AValueCloseToOthersTakesFiveBytes) {
  std::vector<float> in(10'000, 0.0f);
  for (std::size_t i = 0; i < in.size(); i += 100) in[i] = 1.0f;
  EXPECT_EQ(SparseBytes(in.size(), in.data()), 4 + 100 * 5u);
}

std::string Refusal(std::size_t n, const std::vector<std::byte>& bytes) {
  std::vector<float> out(n);
  const Status status = DecodeSparse(n, bytes, out.data());
  if (status) return "accepted";
  EXPECT_EQ(status.error().code, ErrorCode::kMalformed);
  return status.error().message;
}

TEST(SparseValuesTest, RefusesOtherBytesByName) {
  const std::vector<std::byte> good = Encoded({0.0f, 1.0f, 0.0f, 2.0f});
  ASSERT_EQ(good.size(), 4 + 2 * 5u);
  EXPECT_EQ(Refusal(4, good), "accepted");
  EXPECT_EQ(Refusal(3, good), "largest values: value 1 of 2 (counted from 0) has position 3, expected below 3");
  EXPECT_EQ(Refusal(1, good), "largest values: 2 of them, expected at most 1");
  EXPECT_EQ(Refusal(4, {}), "largest values: 0 bytes, expected at least 4");
  EXPECT_EQ(Refusal(4, {good.begin(), good.end() - 1}), "largest values: 13 bytes, expected at least 14 for 2 of them");
  std::vector<std::byte> bad = good;
  bad.push_back(std::byte{0});
  EXPECT_EQ(Refusal(4, bad), "largest values: 1 bytes behind the last position");
  bad = good;
  bad.back() = std::byte{0x80};
  const std::string damaged =
      "largest values: the number of zeros before value 1 of 2 (counted from 0) is cut off or has more than 32 bits";
  EXPECT_EQ(Refusal(4, bad), damaged) << "cut off";
  bad.insert(bad.end(), 6, std::byte{0xff});
  EXPECT_EQ(Refusal(4, bad), damaged) << "more than 32 bits";
}

TEST(SparseValuesTest, AnyBytesAreReadWithinBounds) {
  SplitMix random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<float> in(random.Below(40), 0.0f);
    for (float& v : in)
      if (random.Chance(0.3)) v = 1.0f;
    std::vector<std::byte> bytes = Encoded(in);
    for (std::uint64_t changes = random.Below(4); changes > 0; --changes)
      bytes[random.Below(bytes.size())] = static_cast<std::byte>(random.Next());
    if (random.Chance(0.3)) bytes.resize(random.Below(bytes.size() + 4));
    std::vector<float> out = Poisoned(in.size() + 1);
    const Status status = DecodeSparse(in.size(), bytes, out.data());
    EXPECT_TRUE(std::isnan(out[in.size()])) << "wrote beyond its end";
    if (!status) {
      EXPECT_EQ(status.error().code, ErrorCode::kMalformed);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels

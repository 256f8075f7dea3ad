// Shows that CRC-32C agrees with the vectors of RFC 3720, appendix B.4, and that its two implementations agree.
#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "core/hash.h"

namespace tarn {
namespace {

std::vector<std::byte> Rising(int from, int step) {
  std::vector<std::byte> bytes(32);
  for (int i = 0; i < 32; ++i) bytes[std::size_t(i)] = std::byte(from + step * i);
  return bytes;
}

std::vector<std::byte> Noise(std::size_t count) {
  SplitMix words(7);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = std::byte(words.Next() & 0xff);
  return bytes;
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(Rising(0, 1)), 0x46dd794eu);
  EXPECT_EQ(Crc32c(Rising(31, -1)), 0x113fdb5cu);
}

TEST(Crc32c, TableAgreesWithInstructionAtEveryLengthAndOffset) {
  if (!internal::HasHardwareCrc32c()) GTEST_SKIP() << "no CRC-32C instruction";
  const auto bytes = Noise(300);
  for (std::size_t offset = 0; offset < 9; ++offset)
    for (std::size_t length = 0; offset + length <= bytes.size(); ++length) {
      const auto part = std::span(bytes).subspan(offset, length);
      ASSERT_EQ(internal::TableCrc32c(part, 5), internal::HardwareCrc32c(part, 5)) << offset << " " << length;
    }
}

TEST(Crc32c, PartsGiveTheSumOfTheWhole) {
  const auto bytes = Noise(100);
  const std::span<const std::byte> whole(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
    ASSERT_EQ(Crc32c(whole.subspan(cut), Crc32c(whole.first(cut))), Crc32c(whole));
}

TEST(Crc32c, AFlippedBitChangesTheSum) {
  auto bytes = Noise(64);
  const std::uint32_t before = Crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_NE(Crc32c(bytes), before);
    bytes[bit / 8] ^= std::byte(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace tarn

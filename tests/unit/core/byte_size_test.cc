// Shows that amounts of bytes are written and read back, at the limit and one past it, and that other text is refused.
#include "core/byte_size.h"

#include <gtest/gtest.h>

namespace tarn {
namespace {

TEST(ByteSizeTest, ReadsAllUnits) {
  EXPECT_EQ(ParseByteSize("0"), 0u);
  EXPECT_EQ(ParseByteSize("4097"), 4097u);
  EXPECT_EQ(ParseByteSize("3KiB"), 3u << 10);
  EXPECT_EQ(ParseByteSize("512 MiB"), 512u << 20);
  EXPECT_EQ(ParseByteSize("8GiB"), std::uint64_t{8} << 30);
  EXPECT_EQ(ParseByteSize("2TiB"), std::uint64_t{2} << 40);
}

TEST(ByteSizeTest, RefusesMoreThanItsLimit) {
  EXPECT_EQ(ParseByteSize("9223372036854775807"), 9223372036854775807u);
  EXPECT_FALSE(ParseByteSize("9223372036854775808"));
  EXPECT_EQ(ParseByteSize("8388607TiB"), 8388607u * (std::uint64_t{1} << 40));
  EXPECT_FALSE(ParseByteSize("8388608TiB"));
  EXPECT_FALSE(ParseByteSize("99999999999999999999"));
}

TEST(ByteSizeTest, RefusesOtherText) {
  for (const char* text : {"", " 1", "-1", "1.5GiB", "GiB", "8GB", "8gib", "8GiB ", "8  GiB", "0x10"})
    EXPECT_FALSE(ParseByteSize(text)) << text;
}

TEST(ByteSizeTest, WritesTheShortestText) {
  EXPECT_EQ(ToByteSize(0), "0");
  EXPECT_EQ(ToByteSize(1023), "1023");
  EXPECT_EQ(ToByteSize(1536), "1536");
  EXPECT_EQ(ToByteSize(1 << 20), "1MiB");
  EXPECT_EQ(ToByteSize(std::uint64_t{1536} << 20), "1536MiB");
  for (std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{12345} << 10, std::uint64_t{7} << 40})
    EXPECT_EQ(ParseByteSize(ToByteSize(bytes)), bytes);
}

}  // namespace
}  // namespace tarn

// Shows that a parser reads JSON as it was written: members in order, numbers exactly, with any bytes in strings.
#include "core/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/hash.h"

namespace tarn {
namespace {

TEST(Json, ObjectsArraysAndScalars) {
  Json out = {{"name", "a9a"}, {"rows", 32561}, {"auc", 0.9025}, {"done", true}, {"text", std::string("x")}};
  out["negative"] = -5;
  out["f"] = ShortestNumber(0.1f);
  out["none"] = nullptr;
  out["list"] = {1, 2.5, Json::array(), Json::object()};
  EXPECT_EQ(JsonText(out),
            R"({"name":"a9a","rows":32561,"auc":0.9025,"done":true,"text":"x","negative":-5,"f":0.1,"none":null,)"
            R"("list":[1,2.5,[],{}]})");
}

TEST(Json, WritesIndentedText) {
  const Json out = {{"a", 1}, {"b", Json::array({1})}, {"c", Json::object()}};
  EXPECT_EQ(JsonText(out, 2), "{\n  \"a\": 1,\n  \"b\": [\n    1\n  ],\n  \"c\": {}\n}");
}

TEST(Json, NumbersAreReadBackExactly) {
  SplitMix words(5);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(words.Next());
    const std::string text = JsonText(value);
    if (std::isfinite(value))
      ASSERT_EQ(std::bit_cast<std::uint64_t>(Json::parse(text).get<double>()), std::bit_cast<std::uint64_t>(value));
    else
      ASSERT_EQ(text, "null");
  }
  for (const std::uint64_t value : {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()})
    EXPECT_EQ(Json::parse(JsonText(value)).get<std::uint64_t>(), value);
  EXPECT_EQ(JsonText(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

TEST(Json, FloatsHaveFewDigitsAndAreReadBackExactly) {
  EXPECT_EQ(JsonText({ShortestNumber(0.1f), ShortestNumber(-2.5e-8f), ShortestNumber(16777216.0f)}),
            "[0.1,-2.5e-08,16777216.0]");
  SplitMix words(7);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(words.Next()));
    const std::string text = JsonText(ShortestNumber(value));
    if (!std::isfinite(value)) {
      ASSERT_EQ(text, "null");
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(Json::parse(text).get<float>()), std::bit_cast<std::uint32_t>(value))
        << text;
  }
}

TEST(Json, AStringMayContainAnyByte) {
  for (int c = 0; c < 256; ++c) {
    const std::string text = {'a', char(c), 'b'};
    EXPECT_EQ(Json::parse(JsonText(text)).get<std::string>(), c < 128 ? text
                                                                      : "a\xef\xbf\xbd"
                                                                        "b")
        << c;
  }
}

TEST(Json, RandomBytesAlwaysParse) {
  SplitMix words(6);
  for (int i = 0; i < 5000; ++i) {
    std::string text(words.Below(24), '\0');
    for (char& c : text) c = char(words.Next());
    const std::string written = JsonText(Json{{text, text}});
    ASSERT_NO_THROW({ auto parsed = Json::parse(written); }) << written;
  }
}

}  // namespace
}  // namespace tarn

// JSON: what is written is what another parser reads back, numbers to the bit, for any bytes in strings.
#include "core/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/hash.h"

namespace tarn {
namespace {

using nlohmann::json;

TEST(Json, ObjectsArraysAndScalars) {
  JsonWriter out;
  out.BeginObject();
  out.Member("name", "a9a").Member("rows", 32561).Member("auc", 0.9025).Member("done", true);
  out.Member("text", std::string("x")).Member("negative", -5).Member("f", 0.1f);
  out.Key("none").Null();
  out.Key("list").BeginArray().Value(1).Value(2.5).BeginArray().EndArray().BeginObject().EndObject().EndArray();
  out.EndObject();
  EXPECT_EQ(out.text(),
            R"({"name":"a9a","rows":32561,"auc":0.9025,"done":true,"text":"x","negative":-5,"f":0.1,"none":null,)"
            R"("list":[1,2.5,[],{}]})");
}

TEST(Json, Indented) {
  JsonWriter out(2);
  out.BeginObject().Member("a", 1);
  out.Key("b").BeginArray().Value(1).EndArray();
  out.Key("c").BeginObject().EndObject();
  out.EndObject();
  EXPECT_EQ(out.text(), "{\n  \"a\": 1,\n  \"b\": [\n    1\n  ],\n  \"c\": {}\n}");
}

TEST(Json, NumbersComeBackToTheBit) {
  SplitMix words(5);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(words.Next());
    JsonWriter out;
    out.Value(value);
    if (std::isfinite(value))
      ASSERT_EQ(std::bit_cast<std::uint64_t>(json::parse(out.text()).get<double>()),
                std::bit_cast<std::uint64_t>(value));
    else
      ASSERT_EQ(out.text(), "null");
  }
  for (std::uint64_t value : {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()}) {
    JsonWriter out;
    out.Value(value);
    EXPECT_EQ(json::parse(out.text()).get<std::uint64_t>(), value);
  }
  JsonWriter low;
  low.Value(std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(low.text(), "-9223372036854775808");
}

TEST(Json, EveryByteInAString) {
  for (int c = 0; c < 256; ++c) {
    const std::string text = {'a', char(c), 'b'};
    JsonWriter out;
    out.Value(text);
    const auto back = json::parse(out.text()).get<std::string>();
    EXPECT_EQ(back, c < 128 ? text
                            : "a\xef\xbf\xbd"
                              "b")
        << c;
  }
}

TEST(Json, Utf8PassesAndBrokenUtf8IsReplaced) {
  const auto round = [](std::string_view text) {
    JsonWriter out;
    out.Value(text);
    return json::parse(out.text()).get<std::string>();
  };
  const std::string bad = "\xef\xbf\xbd";
  for (std::string good : {"é", "€", "𝄞", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) EXPECT_EQ(round(good), good);
  EXPECT_EQ(round("\xc0\xaf"), bad + bad);            // overlong
  EXPECT_EQ(round("\xed\xa0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(round("\xe2\x82"), bad + bad);            // cut short
  EXPECT_EQ(round("\xf5\x80\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(round("\xe0\x80\x80"), bad + bad + bad);
}

TEST(Json, RandomBytesAlwaysParse) {
  SplitMix words(6);
  for (int i = 0; i < 5000; ++i) {
    std::string text(words.Below(24), '\0');
    for (char& c : text) c = char(words.Next());
    JsonWriter out;
    out.BeginObject().Member(text, text).EndObject();
    ASSERT_NO_THROW({ auto parsed = json::parse(out.text()); }) << out.text();
  }
}

TEST(JsonDeathTest, CallsOutOfOrderStop) {
  EXPECT_DEATH(JsonWriter().EndObject(), "end without its begin");
  EXPECT_DEATH(JsonWriter().BeginObject().Value(1), "needs a key");
  EXPECT_DEATH(JsonWriter().BeginArray().Key("a"), "a key belongs into an object");
  EXPECT_DEATH(JsonWriter().Value(1).Value(2), "second value");
}

}  // namespace
}  // namespace tarn

// Shows the tree of a TOML document: kinds and places of values, overrides, and the bounds on size and depth.
#include "core/job/config_tree.h"

#include <gtest/gtest.h>

#include "core/limits.h"

namespace tarn {
namespace {

using Kind = ConfigNode::Kind;

ConfigNode Parsed(std::string_view text) {
  auto root = ParseConfig(text, "f");
  EXPECT_TRUE(root) << (root ? "" : root.error().message);
  return root ? *root : ConfigNode{};
}

TEST(ConfigTree, NodesHaveTheirKindAndPlace) {
  const ConfigNode root = Parsed("a = 1\n\n[s]\nb = 2.5\nc = \"x\"\nd = true\ne = [1,\n 2]\nf = 2024-01-31\n");
  EXPECT_EQ(root.Find("a")->integer, 1);
  EXPECT_EQ(root.Find("a")->place, "f:1");
  const ConfigNode& section = *root.Find("s");
  EXPECT_EQ(section.place, "f:3");
  EXPECT_EQ(section.Find("b")->number, 2.5);
  EXPECT_EQ(section.Find("c")->text, "x");
  EXPECT_TRUE(section.Find("d")->boolean);
  EXPECT_EQ(section.Find("e")->items.size(), 2u);
  EXPECT_EQ(section.Find("e")->items[1].place, "f:8");
  EXPECT_EQ(section.Find("f")->kind, Kind::kTime);
  EXPECT_EQ(section.Find("g"), nullptr);
  EXPECT_EQ(section.Find("b")->Find("x"), nullptr) << "a number has no members";
}

TEST(ConfigTree, SyntaxErrorsNameTheLine) {
  const auto root = ParseConfig("[s]\na = 1\nb = = 2\n", "job.toml");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(root.error().message.substr(0, 12), "job.toml:3: ") << root.error().message;
  EXPECT_FALSE(ParseConfig("a = 1\na = 2\n", "f"));
  EXPECT_FALSE(ParseConfig("a = \"\xff\"\n", "f"));
}

// Characters on which toml++'s test for white space would fail, at places where white space is allowed.
TEST(ConfigTree, CharactersThatTomlMisclassifiesAreSyntaxErrors) {
  for (const std::string letter : {"\u03dd", "\u3042", "\ufe70", "\u1681", "\u2070", "\u00b0"}) {
    EXPECT_FALSE(ParseConfig(letter + " = 1", "f")) << letter;
    EXPECT_FALSE(ParseConfig("a = 1" + letter, "f")) << letter;
    std::string quoted = "a = '";
    quoted.append(letter).append("' # ").append(letter);
    EXPECT_EQ(Parsed(quoted).Find("a")->text, letter);
  }
}

TEST(ConfigTree, ADocumentOnePastTheSizeLimitIsRefused) {
  const std::string text(limits::kJobBytesMax, '\n');
  EXPECT_TRUE(ParseConfig(text, "f"));
  const auto over = ParseConfig(text + "\n", "f");
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(over.error().message, "f: more than 262144 bytes");
}

std::string DeepKey(std::size_t dots) {
  std::string key = "a";
  for (std::size_t i = 0; i < dots; ++i) key.append(".a");
  return key;
}

TEST(ConfigTree, ADocumentOnePastTheDepthLimitIsRefused) {
  EXPECT_TRUE(ParseConfig(DeepKey(7) + " = 1", "f"));
  const auto deep = ParseConfig("# second line\n" + DeepKey(8) + " = 1", "f");
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().message, "f:2: nested deeper than 8");
  EXPECT_FALSE(ParseConfig("a = [[[[[[[[[1]]]]]]]]]", "f"));
}

TEST(ConfigTree, ManyDotsAreRefusedBeforeTheyNest) {
  const auto at_limit = ParseConfig(DeepKey(limits::kJobDotsMax) + " = 1", "f");
  ASSERT_FALSE(at_limit);
  EXPECT_EQ(at_limit.error().message, "f:1: nested deeper than 8");
  const auto past = ParseConfig(DeepKey(limits::kJobDotsMax + 1) + " = 1", "f");
  ASSERT_FALSE(past);
  EXPECT_EQ(past.error().message, "f: more than 4096 dots");
}

TEST(Override, ValuesAreTomlOrBareWords) {
  ConfigNode root = Parsed("[s]\na = 1\nkept = 3\n");
  for (std::string_view assignment : {"s.a=2", "s.b = \"quoted\"", "s.c=bare_word", "s.d=../some/path.tsv",
                                      "s.e=[1, 2]", "s.f=true", "s.g=", "s.h=1.5", "t.x={y=1}", "s.i=a b", "s.j=2.0.1"})
    ASSERT_TRUE(ApplyOverride(root, assignment)) << assignment;
  const ConfigNode& s = *root.Find("s");
  EXPECT_EQ(s.Find("a")->integer, 2);
  EXPECT_EQ(s.Find("kept")->integer, 3);
  EXPECT_EQ(s.Find("kept")->place, "f:3");
  EXPECT_EQ(s.Find("b")->text, "quoted");
  EXPECT_EQ(s.Find("c")->text, "bare_word");
  EXPECT_EQ(s.Find("d")->text, "../some/path.tsv");
  EXPECT_EQ(s.Find("e")->items.size(), 2u);
  EXPECT_EQ(s.Find("f")->kind, Kind::kBoolean);
  EXPECT_EQ(s.Find("g")->text, "");
  EXPECT_EQ(s.Find("h")->number, 1.5);
  EXPECT_EQ(s.Find("i")->text, "a b");
  EXPECT_EQ(s.Find("j")->text, "2.0.1");
  EXPECT_EQ(root.Find("t")->Find("x")->Find("y")->integer, 1);
  EXPECT_EQ(s.Find("a")->place, "--set 's.a=2'");
}

TEST(Override, LaterOverridesWinAndTablesMerge) {
  ConfigNode root = Parsed("[s]\na = 1\n[s.t]\nb = 1\n");
  ASSERT_TRUE(ApplyOverride(root, "s.t.c=2"));
  ASSERT_TRUE(ApplyOverride(root, "s.t={b=5}"));
  ASSERT_TRUE(ApplyOverride(root, "s.a=7"));
  ASSERT_TRUE(ApplyOverride(root, "s.a=8"));
  EXPECT_EQ(root.Find("s")->Find("t")->Find("b")->integer, 5);
  EXPECT_EQ(root.Find("s")->Find("t")->Find("c")->integer, 2);
  EXPECT_EQ(root.Find("s")->Find("a")->integer, 8);
}

std::string OverrideError(std::string_view assignment) {
  ConfigNode root;
  const auto status = ApplyOverride(root, assignment);
  EXPECT_TRUE(root.members.empty());
  return status ? "accepted" : status.error().message;
}

TEST(Override, ErrorsNameTheOverride) {
  EXPECT_EQ(OverrideError("fleet.workers"), "--set 'fleet.workers': expected section.key=value on one line");
  EXPECT_EQ(OverrideError("a.b=1\nc=2"), "--set 'a.b=1?c=2': expected section.key=value on one line");
  EXPECT_EQ(OverrideError("a.b=x\xff").substr(6), "'a.b=x\xff': not UTF-8");
  EXPECT_EQ(OverrideError("=3"), "--set '=3': '' is not a key: expected section.key=value");
  EXPECT_EQ(OverrideError("a b=3"), "--set 'a b=3': 'a b' is not a key: expected section.key=value");
  EXPECT_EQ(OverrideError("[x]=3"), "--set '[x]=3': '[x]' is not a key: expected section.key=value");
  EXPECT_EQ(OverrideError("a.b=[1,").substr(0, 17), "--set 'a.b=[1,': ");
  EXPECT_EQ(OverrideError("a.b=\"x").substr(0, 16), "--set 'a.b=\"x': ");
}

}  // namespace
}  // namespace tarn

// Shows the edit distance of words, and which known word error messages suggest.
#include "core/nearest.h"

#include <gtest/gtest.h>

#include <string>

#include "core/names.h"

namespace tarn {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("workers", "workers"), 0u);
  EXPECT_EQ(EditDistance("worker", "workers"), 1u);
  EXPECT_EQ(EditDistance("wrokers", "workers"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("ca", "abc"), 3u);  // no further edits between swapped letters
}

TEST(EditDistance, IsSymmetric) {
  for (std::string_view a : {"fm", "deepfm", "mlp", ""})
    for (std::string_view b : {"dlrm", "wide_deep", "fm"}) EXPECT_EQ(EditDistance(a, b), EditDistance(b, a));
}

TEST(IsNear, AtMostHalfOfTheWordDiffers) {
  EXPECT_TRUE(IsNear("spp", "ssp"));
  EXPECT_TRUE(IsNear("lr", "l2"));
  EXPECT_FALSE(IsNear("csv", "idx"));
  EXPECT_FALSE(IsNear("", "x"));
}

TEST(NearestWord, IsTheFirstOfTheNearest) {
  constexpr std::string_view kKnown[] = {"servers", "shards", "workers"};
  EXPECT_EQ(NearestWord("wokers", kKnown), "workers");
  EXPECT_EQ(NearestWord("shard", kKnown), "shards");
  EXPECT_EQ(NearestWord("", kKnown), "shards");
  EXPECT_EQ(NearestWord("x", {}), "");
  EXPECT_EQ(NearestWord(std::string(1'000'000, 'w'), kKnown), "workers");
}

TEST(Quoted, ShowsWhatIsSafeToShow) {
  EXPECT_EQ(Quoted("abc"), "'abc'");
  EXPECT_EQ(Quoted("a\x1b[31m\n"), "'a?[31m?'");
  EXPECT_EQ(Quoted(std::string(64, 'x')).size(), 66u);
  EXPECT_EQ(Quoted(std::string(65, 'x')), "'" + std::string(64, 'x') + "...'");
}

}  // namespace
}  // namespace tarn

// Shows that a segment gets a run of id blocks of the requested length if there is one, and that no block has two
// owners.
#include "server/tier/id_blocks.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

TEST(IdBlocksTest, ASegmentGetsARunAndReturnsWhatItDoesNotNeed) {
  IdBlocks ids(4, 8, 1 << 10);  // 64 blocks of 16 ids
  const IdBlocks::Run first = ids.Take(7);
  EXPECT_EQ(first.first, 0u);
  EXPECT_EQ(first.count, 8u);
  EXPECT_EQ(ids.OwnerOf(8 * 16 - 1), 7u);
  EXPECT_EQ(ids.FirstId(3), 48u);
  EXPECT_EQ(ids.BlocksFor(17), 2u);
  ids.Give(2, 8);
  EXPECT_EQ(ids.used_ids(), 32u);
  EXPECT_EQ(ids.OwnerOfBlock(2), IdBlocks::kNone);
  EXPECT_EQ(ids.OwnerOfBlock(1), 7u);
}

TEST(IdBlocksTest, WithoutALongEnoughRunTheLongestIsTaken) {
  IdBlocks ids(4, 8, 16 * 16);  // 16 blocks
  EXPECT_EQ(ids.Take(0).count, 8u);
  EXPECT_EQ(ids.Take(1).count, 8u);
  ids.Give(0, 3);
  ids.Give(5, 7);
  const IdBlocks::Run longest = ids.Take(2);
  EXPECT_EQ(longest.first, 0u);
  EXPECT_EQ(longest.count, 3u);
  EXPECT_EQ(ids.Take(3).count, 2u);
  EXPECT_EQ(ids.Take(4).count, 0u);
  EXPECT_EQ(ids.used_ids(), 256u);
}

}  // namespace
}  // namespace tarn::server

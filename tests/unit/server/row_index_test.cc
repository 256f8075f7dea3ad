// The index of a sparse partition: finds what was put in, through growth, whatever the keys look like.
#include "server/row_index.h"

#include <gtest/gtest.h>

#include <set>

#include "server/row_slabs.h"

namespace tarn::server {
namespace {

TEST(RowIndexTest, AnEmptyIndexHasNothing) {
  RowIndex index(1, 0);
  EXPECT_EQ(index.Find(index.Hash(5), 5), RowIndex::kNone);
  EXPECT_EQ(index.size(), 0u);
  EXPECT_EQ(index.memory_bytes(), 0u);
}

TEST(RowIndexTest, FindsAllThroughGrowth) {
  for (std::uint32_t bits : {0u, 6u, 12u}) {
    RowIndex index(99, bits);
    constexpr std::uint32_t kKeys = 20'000;
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      const Key key = std::uint64_t{i} << 40 | 3;
      ASSERT_EQ(index.FindOrInsert(index.Hash(key), key, i), i);
      ASSERT_EQ(index.FindOrInsert(index.Hash(key), key, kKeys), i);
    }
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      const Key key = std::uint64_t{i} << 40 | 3;
      ASSERT_EQ(index.Find(index.Hash(key), key), i);
      ASSERT_EQ(index.Find(index.Hash(key + 1), key + 1), RowIndex::kNone);
    }
    EXPECT_EQ(index.size(), kKeys);
    EXPECT_LE(index.memory_bytes(), kKeys * 25);
    std::set<Key> seen;
    index.ForEach([&](Key key, std::uint32_t row) {
      EXPECT_EQ(key, std::uint64_t{row} << 40 | 3);
      seen.insert(key);
    });
    EXPECT_EQ(seen.size(), kKeys);
  }
}

TEST(RowIndexTest, TakesTheExtremeKeys) {
  RowIndex index(5, 3);
  const Key keys[] = {0, 1, ~Key{0}, Key{1} << 63};
  for (std::uint32_t i = 0; i < 4; ++i) index.FindOrInsert(index.Hash(keys[i]), keys[i], i);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(index.Find(index.Hash(keys[i]), keys[i]), i);
}

TEST(RowSlabsTest, RowsNeverMoveNorOverlap) {
  for (std::uint32_t floats : {1u, 3u, 16u, 17u, 100u, 20'000u}) {
    Arena arena;
    RowSlabs slabs(&arena, floats);
    const std::uint32_t count = floats > 1000 ? 20 : 40'000;
    std::vector<float*> at;
    for (std::uint32_t i = 0; i < count; ++i) {
      float* row = slabs.Add();
      at.push_back(row);
      row[0] = static_cast<float>(i);
      row[floats - 1] = static_cast<float>(i);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(slabs.Row(i), at[i]);
      ASSERT_EQ(at[i][0], static_cast<float>(i));
      ASSERT_EQ(at[i][floats - 1], static_cast<float>(i));
    }
    EXPECT_EQ(slabs.size(), count);
  }
}

TEST(ArenaTest, PiecesAreAlignedAndCountedWithLittleWaste) {
  Arena arena;
  std::size_t used = 0;
  for (std::size_t bytes : {1u, 63u, 64u, 65u, 5000u, 100'000u, 3'000'000u}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.Allocate(bytes)) % Arena::kAlignment, 0u);
    used += bytes;
  }
  EXPECT_GE(arena.reserved_bytes(), used);
  EXPECT_LE(arena.reserved_bytes(), used + (64 << 10));
}

}  // namespace
}  // namespace tarn::server

// Shows that shards are visited once, in ascending order, until a visit removes them.
#include "worker/client/shard_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tarn::worker {
namespace {

std::vector<std::uint32_t> Visit(ShardSet* set, std::initializer_list<std::uint32_t> stay) {
  std::vector<std::uint32_t> visited;
  set->Visit([&](ShardId shard) {
    visited.push_back(shard.value);
    return std::ranges::find(stay, shard.value) != stay.end();
  });
  return visited;
}

TEST(ShardSetTest, VisitsEachShardOnceInOrder) {
  ShardSet set;
  for (const std::uint32_t shard : {7u, 2u, 7u, 90u, 2u, 5u}) set.Add(ShardId(shard));
  EXPECT_EQ(Visit(&set, {5, 90}), (std::vector<std::uint32_t>{2, 5, 7, 90}));
  set.Add(ShardId(7));
  set.Add(ShardId(5));
  EXPECT_EQ(Visit(&set, {}), (std::vector<std::uint32_t>{5, 7, 90}));
  EXPECT_TRUE(Visit(&set, {}).empty());
}

TEST(ShardSetTest, IsEmptyAfterClear) {
  ShardSet set;
  set.Add(ShardId(3));
  set.Clear();
  EXPECT_TRUE(Visit(&set, {}).empty());
  set.Add(ShardId(3));
  EXPECT_EQ(Visit(&set, {}), std::vector<std::uint32_t>{3});
}

}  // namespace
}  // namespace tarn::worker

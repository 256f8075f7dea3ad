// Shows that grouping is a stable permutation: every item once, in its partition, in input order.
#include "kernels/partition.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/hash.h"

namespace tarn::kernels {
namespace {

TEST(PartitionTest, GroupsStably) {
  SplitMix random(1);
  for (const std::size_t n : {0, 1, 2, 63, 1000, 20000})
    for (const std::uint32_t partitions : {1u, 2u, 5u, 64u, 4096u}) {
      std::vector<std::uint32_t> partition_of(n);
      for (auto& p : partition_of) p = std::uint32_t(random.Below(partitions));
      std::vector<std::uint32_t> permutation(n, 0xdead), offsets(partitions + 1, 0xdead);
      GroupByPartition(partition_of, partitions, permutation.data(), offsets.data());
      ASSERT_EQ(offsets.front(), 0u);
      ASSERT_EQ(offsets.back(), n);
      std::vector<bool> seen(n, false);
      for (std::uint32_t p = 0; p < partitions; ++p) {
        ASSERT_LE(offsets[p], offsets[p + 1]);
        for (std::uint32_t i = offsets[p]; i < offsets[p + 1]; ++i) {
          ASSERT_LT(permutation[i], n);
          ASSERT_FALSE(seen[permutation[i]]);
          seen[permutation[i]] = true;
          ASSERT_EQ(partition_of[permutation[i]], p);
          ASSERT_TRUE(i == offsets[p] || permutation[i - 1] < permutation[i]);
        }
      }
    }
}

TEST(PartitionTest, NoPartitionsNoItems) {
  std::uint32_t offset = 0xdead;
  GroupByPartition({}, 0, nullptr, &offset);
  EXPECT_EQ(offset, 0u);
}

}  // namespace
}  // namespace tarn::kernels

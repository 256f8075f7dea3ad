// Shows that the plans of a batch are those of its tables one by one, whatever was planned before.
#include "worker/train/batch_planner.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/hash.h"
#include "tests/unit/worker/train/small_set.h"

namespace tarn::worker {
namespace {

TEST(BatchPlannerTest, PlansAreThoseOfEachTableAlone) {
  const Job job = MakeJob();
  std::vector<TableUse> tables = Tables();
  tables.push_back({{}, RowsNeeded::kAll});
  tables[2].spec.id = TableId(2);
  tables[2].spec.name = "layer";
  BatchPlanner planner(job, tables, {.partition_bits = 4});
  SplitMix random(1);
  std::vector<Plan> plans(3);
  plans[2].keys = {5};  // kept
  for (const std::size_t n : {300, 0, 1, 20, 300}) {
    std::vector<Key> keys(n);
    for (Key& key : keys) key = Mix64(random.Below(100) + 1);
    std::vector<Key> given = keys;
    ASSERT_TRUE(planner.Make(&given, &plans));
    EXPECT_EQ(given, keys);
    for (std::size_t t = 0; t < 2; ++t) {
      const TableSpec& spec = tables[t].spec;
      std::vector<Key> of_table = keys;
      if (tables[t].rows == RowsNeeded::kBatchKeysAndBias) of_table.push_back(kBiasKey);
      Plan alone;
      Planner(4).Make(spec.id, spec.dim, Positioner(spec, TableSalt(job.job.seed, spec.name)), of_table, &alone);
      EXPECT_EQ(plans[t].table, spec.id);
      EXPECT_EQ(plans[t].dim, spec.dim);
      EXPECT_EQ(plans[t].keys, alone.keys);
      EXPECT_EQ(plans[t].index, alone.index);
      ASSERT_EQ(plans[t].runs.size(), alone.runs.size());
      for (std::size_t r = 0; r < alone.runs.size(); ++r) {
        EXPECT_EQ(plans[t].runs[r].partition, alone.runs[r].partition);
        EXPECT_EQ(plans[t].runs[r].begin, alone.runs[r].begin);
        EXPECT_EQ(plans[t].runs[r].count, alone.runs[r].count);
      }
    }
    EXPECT_EQ(plans[2].keys, std::vector<Key>{5});
  }
}

}  // namespace
}  // namespace tarn::worker

// Shows which tables of a model keep hot rows, that a table with two caches is refused, and that the memory of a batch
// is reused.
#include "worker/train/hot_tables.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tarn::worker {
namespace {

class HotTablesTest : public ::testing::Test {
 protected:
  HotTablesTest() {
    job_.train.hot_rows.rows = 1024;
    for (const auto kind : {TableKind::kSparse, TableKind::kDense, TableKind::kSparse}) {
      TableUse& use = uses_.emplace_back();
      use.spec.name = "table" + std::to_string(uses_.size() - 1);
      use.spec.kind = kind;
      use.spec.dim = 2;
      use.spec.consistency = {ConsistencyMode::kSsp, 3, ApplyMode::kImmediate};
    }
    uses_[2].spec.consistency.mode = ConsistencyMode::kAsp;
  }

  void GiveCache(std::size_t table) {
    TableOverride& settings = job_.tables[uses_[table].spec.name];
    settings.has_worker_cache = true;
    settings.worker_cache.bytes = 4096;
  }

  Job job_;
  std::vector<TableUse> uses_;
};

TEST_F(HotTablesTest, SparseTablesWithABoundKeepHotRows) {
  auto hot = HotTables::Make(job_, uses_, 0);
  ASSERT_TRUE(hot) << hot.error().message;
  ASSERT_NE((*hot)[0], nullptr);
  EXPECT_EQ((*hot)[1], nullptr) << "dense";
  EXPECT_EQ((*hot)[2], nullptr) << "asp";

  Plan plan;
  Planner(3).Make(TableId(0), 2, Positioner(uses_[0].spec, 5), std::vector<Key>{1, 2}, &plan);
  const auto run = [&](std::vector<HotBatch> batch) {
    EXPECT_EQ(batch.size(), 3u);
    EXPECT_TRUE((*hot)[0]->Look(plan, Clock(1), &batch[0]));
    if (const std::size_t missing = batch[0].missing().keys.size(); missing != 0) {
      EXPECT_TRUE((*hot)[0]->Arrive(Buffer::Allocate(missing * 2 * sizeof(float)), Clock(1), &batch[0]));
    }
    std::vector<const float*> placed(3);
    EXPECT_TRUE(hot->Read(&batch, &placed, nullptr));
    EXPECT_NE(placed[0], nullptr);
    EXPECT_EQ(placed[1], nullptr);
    (*hot)[0]->End(&batch[0]);
    hot->Recycle(std::move(batch));
  };
  run(hot->MakeBatch());
  std::vector<HotBatch> reused = hot->MakeBatch();
  const HotBatch* const memory = reused.data();
  run(std::move(reused));
  EXPECT_EQ(hot->looked_for(), 4u);
  EXPECT_EQ(hot->found(), 2u);
  hot->Clear();
  reused = hot->MakeBatch();
  EXPECT_EQ(reused.data(), memory);
  run(std::move(reused));
  EXPECT_EQ(hot->looked_for(), 6u);
  EXPECT_EQ(hot->found(), 2u) << "its rows were dropped";
}

TEST_F(HotTablesTest, WithoutHotRowsNoTableKeepsAny) {
  job_.train.hot_rows.rows = 0;
  auto hot = HotTables::Make(job_, uses_, 0);
  ASSERT_TRUE(hot);
  std::vector<HotBatch> batch = hot->MakeBatch();
  std::vector<const float*> placed(3);
  EXPECT_TRUE(hot->Read(&batch, &placed, nullptr));
  for (std::size_t t = 0; t < 3; ++t) {
    EXPECT_EQ((*hot)[t], nullptr);
    EXPECT_EQ(placed[t], nullptr);
  }
  EXPECT_EQ(hot->looked_for(), 0u);
}

TEST_F(HotTablesTest, ATableHasOneCacheAtMost) {
  GiveCache(1);
  EXPECT_TRUE(HotTables::Make(job_, uses_, 0)) << "a dense table keeps no hot rows";
  GiveCache(0);
  const auto both = HotTables::Make(job_, uses_, 0);
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(both.error().message,
            "train.hot_rows = 1024 with worker_cache = 4KiB for table 'table0': its rows would be kept twice; expected "
            "one of the two");
}

}  // namespace
}  // namespace tarn::worker

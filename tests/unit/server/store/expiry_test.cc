// Shows Expiry without a store: each table with a life counts its own time, rows expire at boundaries, and a sweep
// frees them.
#include "server/store/expiry.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn::server {
namespace {

TableSpec Spec(std::uint32_t id, const LifeSpec& life) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "table" + std::to_string(id);
  spec.dim = 2;
  spec.life = life;
  return spec;
}

class ExpiryTest : public testing::Test {
 protected:
  ExpiryTest() { partitions_.push_back(std::make_unique<Partition>(PartitionId(0), 0, &context_)); }
  ~ExpiryTest() override {
    for (const auto& partition : partitions_) partition->Release();
  }
  Table& Add(const TableSpec& spec) {
    if (tables_.size() <= spec.id.value) tables_.resize(spec.id.value + 1);
    tables_[spec.id.value] = std::make_unique<Table>(spec, 1, 0);
    expiry_.OnTableAdded(tables_[spec.id.value].get());
    return *tables_[spec.id.value];
  }
  // A row for each of the first keys, pushed now.
  SparseFragment& Fill(const Table& table, Key keys) {
    auto& fragment = static_cast<SparseFragment&>(partitions_[0]->Obtain(table));
    for (Key key = 0; key < keys; ++key) (void)fragment.RowForApply(key, RowIndex::kNone, Clock(0));
    return fragment;
  }
  StoreContext context_;
  Tables tables_;
  Partitions partitions_;
  Expiry expiry_{tables_, partitions_, &context_};
};

TEST_F(ExpiryTest, TablesCountClocksOrSeconds) {
  const Table& in_clocks = Add(Spec(1, {.on = true, .expire_clocks = 10, .sweep_clocks = 5}));
  EXPECT_FALSE(expiry_.counts_seconds());
  const Table& in_seconds = Add(Spec(2, {.on = true, .expire_seconds = 100}));
  EXPECT_TRUE(expiry_.counts_seconds());
  expiry_.AdvanceClock(Clock(7));
  expiry_.AdvanceSeconds(1'000);
  EXPECT_EQ(in_clocks.now(), 7u);
  EXPECT_EQ(in_seconds.now(), 1'000u);
  expiry_.AdvanceClock(Clock(3));
  EXPECT_EQ(expiry_.clock(), Clock(7)) << "time does not go back";
  EXPECT_EQ(in_clocks.now(), 7u);
}

TEST_F(ExpiryTest, ANewTableHasTheTimeOfTheOthers) {
  expiry_.AdvanceClock(Clock(7));
  EXPECT_EQ(Add(Spec(1, {.on = true, .expire_clocks = 10, .sweep_clocks = 5})).now(), 7u);
}

TEST_F(ExpiryTest, RowsExpireAtABoundaryAndAreFreedInSlices) {
  expiry_.AdvanceClock(Clock(0));
  const Table& table = Add(Spec(1, {.on = true, .expire_clocks = 8, .sweep_clocks = 8}));
  const SparseFragment& fragment = Fill(table, 1'000);
  expiry_.AdvanceClock(Clock(7));
  EXPECT_EQ(fragment.row_count(), 1'000u);
  expiry_.AdvanceClock(Clock(100));
  EXPECT_EQ(fragment.row_count(), 0u) << "gone is gone, whenever the memory is freed";
  int slices = 0;
  for (; expiry_.sweeping(); ++slices) expiry_.Sweep(100);
  EXPECT_GT(slices, 5);
  EXPECT_EQ(context_.counters.expired, 1'000u);
}

TEST_F(ExpiryTest, ADroppedPartitionIsNotSwept) {
  expiry_.AdvanceClock(Clock(0));
  const Table& table = Add(Spec(1, {.on = true, .expire_clocks = 8, .sweep_clocks = 8}));
  Fill(table, 1'000);
  expiry_.AdvanceClock(Clock(100));
  expiry_.Sweep(100);
  ASSERT_TRUE(expiry_.sweeping());
  partitions_[0]->Release();
  partitions_[0] = std::make_unique<Partition>(PartitionId(0), 0, &context_);
  expiry_.OnPartitionDropped();
  EXPECT_FALSE(expiry_.sweeping());
}

}  // namespace
}  // namespace tarn::server

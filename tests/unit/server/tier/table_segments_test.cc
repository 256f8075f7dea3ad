// Shows the states of a table's segments (open, written, with holes, removed) and the totals that the log keeps of
// them.
#include "server/tier/table_segments.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_cold_store.h"

namespace tarn::server {
namespace {

constexpr std::size_t kWords = 2, kRecords = 16;  // of a segment

class TableSegmentsTest : public testing::Test {
 protected:
  ColdId Append(std::uint32_t number) {
    const std::uint32_t words[kWords] = {number, number + 1};
    return table_.Append({1, number}, words).value();
  }
  void RunStore() {
    while (store_.under_way() != 0) store_.RunOne();
    for (const ColdEvent& event : store_.TakeEvents())
      event.kind == ColdEvent::Kind::kWritten ? table_.OnWritten(event.segment.number)
                                              : table_.OnRemoved(event.segment.number);
  }

  MemoryColdStore store_{[] {}};
  SegmentTotals totals_;
  TableSegments table_{{.table = TableId(3), .words = kWords, .segment_bytes = kRecords * 16, .ids_max = 8 * kRecords},
                       &store_,
                       &totals_};
};

TEST_F(TableSegmentsTest, AFullSegmentIsWrittenAndAnEmptyOneRemoved) {
  std::vector<ColdId> ids(kRecords);
  for (std::uint32_t i = 0; i < kRecords; ++i) ids[i] = Append(i);
  EXPECT_EQ(table_.open_bytes(), 0u) << "it was full";
  EXPECT_EQ(totals_.queued_bytes, kRecords * table_.record_bytes());
  std::uint32_t record[kWords + kOwnerWords];
  ASSERT_TRUE(table_.CopyFromMemory(ids[5], record));
  EXPECT_EQ(record[1], 5u);
  EXPECT_EQ(record[3], 6u);
  RunStore();
  EXPECT_FALSE(table_.CopyFromMemory(ids[5], record));
  EXPECT_EQ(table_.At(ids[5]).offset, 5 * table_.record_bytes());
  EXPECT_EQ(totals_.queued_bytes, 0u);

  table_.BeginRead(ids[0]);
  for (ColdId id : ids) table_.Free(id);
  EXPECT_FALSE(table_.IsLive(ids[0]));
  RunStore();
  EXPECT_EQ(totals_.segments, 1u) << "it is being read";
  table_.EndRead(ids[0]);
  RunStore();
  EXPECT_EQ(totals_.segments, 0u);
  EXPECT_EQ(totals_.rows + totals_.written_bytes + totals_.live_written_bytes, 0u);
}

TEST_F(TableSegmentsTest, TheEmptiestSegmentsAreCollectedFirst) {
  for (std::uint32_t i = 0; i < 6 * kRecords; ++i) Append(i);
  EXPECT_EQ(table_.EmptiestFullness(), 1);
  EXPECT_FALSE(table_.IsTight()) << "there are no holes";
  RunStore();
  for (ColdId id = 0; id < 4; ++id) table_.Free(id);
  for (ColdId id = 3 * kRecords; id < 4 * kRecords - 2; ++id) table_.Free(id);
  EXPECT_EQ(table_.EmptiestFullness(), 2.0 / kRecords);
  EXPECT_TRUE(table_.IsTight());
  EXPECT_EQ(table_.EmptiestRows(3), (std::vector<ColdId>{4, 4 * kRecords - 2, 4 * kRecords - 1}));
}

TEST_F(TableSegmentsTest, ATableHasAtMostAsManyRowsAsIds) {
  for (std::uint32_t i = 0; i < 8 * kRecords; ++i) Append(i);
  const std::uint32_t words[kWords] = {};
  const auto id = table_.Append({}, words);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, ErrorCode::kTooLarge);
  table_.FreeAll();
  EXPECT_EQ(totals_.rows, 0u);
  RunStore();
  RunStore();
  EXPECT_EQ(Append(0), 0u);
}

}  // namespace
}  // namespace tarn::server

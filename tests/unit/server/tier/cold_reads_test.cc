// Shows that records are read from memory and from the store in the order of their ids, and that fetches end in the
// order in which they began.
#include "server/tier/cold_reads.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sim/disks/memory_cold_store.h"

namespace tarn::server {
namespace {

constexpr TableId kTable(3);
constexpr std::size_t kStride = 1 + kOwnerWords;

class ColdReadsTest : public testing::Test {
 protected:
  ColdReadsTest() {
    for (std::uint32_t number = 0; number < 24; ++number) EXPECT_TRUE(segments_.Append({0, number}, &number));
    HandleEvents();  // the first segment is written, the second one open
  }
  void HandleEvents() {
    while (store_.under_way() != 0) store_.RunOne();
    for (ColdEvent& event : store_.TakeEvents())
      event.kind == ColdEvent::Kind::kWritten ? segments_.OnWritten(event.segment.number)
                                              : reads_.OnRead(std::move(event.records));
  }

  MemoryColdStore store_{[] {}};
  SegmentTotals totals_;
  TableSegments segments_{
      {.table = kTable, .words = 1, .segment_bytes = 16 * 12, .ids_max = 1 << 10}, &store_, &totals_};
  ColdReads reads_{&store_};
};

TEST_F(ColdReadsTest, ReadsFromMemoryAndFromTheStore) {
  std::vector<ColdId> ids(24);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<std::uint32_t> records(ids.size() * kStride);
  ASSERT_TRUE(reads_.Read(segments_, ids, records.data()));
  for (std::uint32_t i = 0; i < 24; ++i) EXPECT_EQ(records[i * kStride + kOwnerWords], i);
}

TEST_F(ColdReadsTest, AFetchEndsAfterEarlierOnes) {
  reads_.Begin(kTable, &segments_, {1, 20}, nullptr);
  reads_.Begin(kTable, &segments_, {21}, nullptr);  // all of it is in memory
  EXPECT_EQ(reads_.bytes(), 4 * kStride * sizeof(std::uint32_t));
  EXPECT_FALSE(reads_.Next());
  HandleEvents();
  const auto first = reads_.Next(), second = reads_.Next();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->ids, (std::vector<ColdId>{1, 20}));
  EXPECT_EQ(first->records, (std::vector<std::uint32_t>{0, 1, 1, 0, 20, 20}));
  EXPECT_EQ(second->records, (std::vector<std::uint32_t>{0, 21, 21}));
  EXPECT_EQ(reads_.bytes(), 0u);
  EXPECT_FALSE(reads_.Next());
}

}  // namespace
}  // namespace tarn::server

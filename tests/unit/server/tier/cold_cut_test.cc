// Shows that a cut gets its rows on disk in the order of the fetches, and that its end leaves neither rows nor records.
#include "server/tier/cold_cut.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_cold_store.h"

namespace tarn::server {
namespace {

constexpr TableId kTable(2);
constexpr std::size_t kWords = 3, kSegmentBytes = 4096, kLimit = std::size_t{1} << 20;

class ColdCutTest : public testing::Test, public ColdLogListener {
 protected:
  ColdCutTest() { log_.AddTable(kTable, kWords); }

  Status OnMoved(TableId, RowOwner, ColdId, ColdId) override { return {}; }

  ColdId Spill(Key key) {
    const std::uint32_t words[kWords] = {static_cast<std::uint32_t>(key), 8, 9};
    return cut_.Spill(kTable, kWords, key, words).value();
  }
  void Settle() {
    ASSERT_TRUE(log_.Poll());
    while (store_.under_way() != 0) {
      store_.RunOne();
      ASSERT_TRUE(log_.Poll());
    }
  }
  std::vector<std::uint32_t> Take() {
    std::vector<std::uint32_t> records;
    EXPECT_TRUE(cut_.Take(&records));
    return records;
  }

  MemoryColdStore store_{[] {}};
  ColdLog log_{&store_, this, {.segment_bytes = kSegmentBytes, .queued_segments_max = 2}};
  ColdCut cut_{&log_, kLimit};
};

TEST_F(ColdCutTest, ReadsColdAndSpilledRowsInTheOrderOfTheFetches) {
  const std::uint32_t row[kWords] = {4, 5, 6};
  const ColdId cold = log_.Append(kTable, {1, 2}, row).value();
  const ColdId spilled = Spill(Key{7} << 32 | 11);
  cut_.FetchSpilled(kTable, {spilled});
  cut_.Fetch(kTable, {cold});
  EXPECT_FALSE(cut_.HasRecords());
  Settle();
  ASSERT_TRUE(cut_.HasRecords());
  EXPECT_EQ(Take(), (std::vector<std::uint32_t>{7, 11, 11, 8, 9}));
  EXPECT_EQ(Take(), (std::vector<std::uint32_t>{1, 2, 4, 5, 6}));
  EXPECT_FALSE(cut_.HasRecords());
}

TEST_F(ColdCutTest, TheEndOfACutFreesItsRowsAndDropsItsFetches) {
  std::vector<ColdId> ids(300);
  for (Key key = 0; key < 300; ++key) ids[key] = Spill(key);
  Settle();
  cut_.FreeSpilled(kTable, std::span(ids).first(1));
  EXPECT_EQ(log_.rows(), 299u);
  cut_.FetchSpilled(kTable, {ids[1]});
  cut_.Drop();
  EXPECT_EQ(log_.rows(), 0u);
  const ColdId next = Spill(1000);  // of the next cut
  cut_.FetchSpilled(kTable, {next});
  Settle();
  EXPECT_EQ(Take()[1], 1000u);
  EXPECT_FALSE(cut_.HasRecords());
}

TEST_F(ColdCutTest, RowsAreSpilledBeyondAShareOfTheBudget) {
  EXPECT_EQ(cut_.held_bytes_max(), kLimit / 32);
  EXPECT_FALSE(cut_.MustSpill(kLimit / 32));
  EXPECT_TRUE(cut_.MustSpill(kLimit / 32 + 1));
  const std::uint32_t row[kWords] = {};
  while (log_.HasRoom()) ASSERT_TRUE(log_.Append(kTable, {}, row));
  EXPECT_FALSE(cut_.MustSpill(2 * kLimit / 32)) << "the disk is too slow";
  EXPECT_TRUE(cut_.MustSpill(2 * kLimit / 32 + 1));
  cut_.SetLimit(std::size_t{1} << 40);
  EXPECT_EQ(cut_.held_bytes_max(), std::size_t{16} << 20);
}

}  // namespace
}  // namespace tarn::server

// Shows that cold rows are read as they were appended, in spite of any writing, freeing, fetching and collecting in
// between; that holes are collected; and that a failure of the store is final.
#include "server/tier/cold_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/hash.h"
#include "sim/disks/memory_cold_store.h"

namespace tarn::server {
namespace {

constexpr TableId kNarrow(1), kWide(3);
constexpr std::size_t kSegmentBytes = 16 << 10;
constexpr std::size_t kNarrowWords = 3, kWideWords = 1100;  // many rows a page, and a row longer than a page

// Appends and frees rows, by table and owner's number, and checks every row that is read.
class ColdLogTest : public testing::Test, public ColdLogListener, public FetchReceiver {
 protected:
  ColdLogTest()
      : store_([this] { ++begun_; }), log_(&store_, this, {.segment_bytes = kSegmentBytes, .queued_segments_max = 2}) {
    log_.AddTable(kNarrow, kNarrowWords);
    log_.AddTable(kWide, kWideWords);
  }

  static std::size_t WordsOf(TableId table) { return table == kNarrow ? kNarrowWords : kWideWords; }

  void Append(TableId table, std::uint32_t number) {
    std::vector<std::uint32_t> words(WordsOf(table));
    for (auto& word : words) word = static_cast<std::uint32_t>(rng_.Next());
    ASSERT_TRUE(log_.WaitForRoom());
    const auto id = log_.Append(table, {7, number}, words.data());
    ASSERT_TRUE(id);
    rows_[{table, number}] = {*id, std::move(words)};
  }
  void Free(TableId table, std::uint32_t number) {
    log_.Free(table, rows_.at({table, number}).id);
    rows_.erase({table, number});
  }
  void Check(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) {
    const std::size_t stride = log_.record_words(table);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint32_t* record = records.data() + i * stride;
      const auto row = rows_.find({table, record[1]});
      if (row == rows_.end() || row->second.id != ids[i]) {  // freed since, or appended anew
        ++outdated_;
        continue;
      }
      EXPECT_EQ(record[0], 7u);
      EXPECT_TRUE(std::equal(row->second.words.begin(), row->second.words.end(), record + kOwnerWords));
      ++checked_;
    }
  }
  std::vector<ColdId> SomeIds(TableId table, double share) {
    std::vector<ColdId> ids;
    for (const auto& [at, row] : rows_)
      if (at.first == table && rng_.Chance(share)) ids.push_back(row.id);
    std::ranges::sort(ids);
    return ids;
  }
  void Read(TableId table, double share) {
    const auto ids = SomeIds(table, share);
    std::vector<std::uint32_t> records(ids.size() * log_.record_words(table));
    ASSERT_TRUE(log_.Read(table, ids, records.data()));
    const std::size_t outdated = outdated_;
    Check(table, ids, records);
    EXPECT_EQ(outdated_, outdated);
  }
  void Settle() {
    ASSERT_TRUE(log_.Poll());
    for (int i = 0; i < 10'000 && store_.under_way() != 0; ++i) {
      store_.RunOne();
      ASSERT_TRUE(log_.Poll());
    }
    EXPECT_EQ(store_.under_way(), 0u);
  }

  Status OnFetched(TableId table, std::span<const ColdId> ids, std::span<const std::uint32_t> records) override {
    Check(table, ids, records);
    return {};
  }
  Status OnMoved(TableId table, RowOwner owner, ColdId from, ColdId to) override {
    const auto row = rows_.find({table, owner.number});
    if (row == rows_.end() || row->second.id != from) return Fail(ErrorCode::kCorrupt, "no such row");
    row->second.id = to;
    return {};
  }

  struct Row {
    ColdId id;
    std::vector<std::uint32_t> words;
  };
  SplitMix rng_{42};
  std::size_t begun_ = 0, checked_ = 0, outdated_ = 0;
  MemoryColdStore store_;
  ColdLog log_;
  std::map<std::pair<TableId, std::uint32_t>, Row> rows_;
};

TEST_F(ColdLogTest, ReadsRowsInMemoryAndRowsOnDisk) {
  for (std::uint32_t i = 0; i < 20; ++i) Append(kNarrow, i);
  Read(kNarrow, 1);
  EXPECT_EQ(store_.reads(), 0u);
  for (std::uint32_t i = 20; i < 2000; ++i) Append(kNarrow, i);
  for (std::uint32_t i = 0; i < 20; ++i) Append(kWide, i);
  Settle();
  Read(kNarrow, 1);
  Read(kWide, 1);
  EXPECT_GT(store_.reads(), 1000u);
  EXPECT_EQ(checked_, 20u + 2000 + 20);
}

TEST_F(ColdLogTest, EmptySegmentsAreRemovedAndTheirNumbersReused) {
  for (std::uint32_t round = 0; round < 50; ++round) {
    for (std::uint32_t i = 0; i < 300; ++i) Append(kNarrow, i);
    Settle();
    Read(kNarrow, 0.5);
    for (std::uint32_t i = 0; i < 300; ++i) Free(kNarrow, i);
    Settle();
  }
  EXPECT_EQ(log_.rows(), 0u);
  EXPECT_LE(log_.segments(), 2u);
  EXPECT_LE(store_.disk_bytes(), kSegmentBytes);
}

TEST_F(ColdLogTest, HolesAreCollected) {
  for (std::uint32_t i = 0; i < 40'000; ++i) Append(kNarrow, i);
  Settle();
  const std::uint64_t full = store_.disk_bytes();
  for (std::uint32_t i = 0; i < 40'000; ++i)
    if (i % 8 != 0) Free(kNarrow, i);
  Settle();
  EXPECT_LT(store_.disk_bytes(), full / 3);
  EXPECT_GT(log_.moved(), 0u);
  Read(kNarrow, 1);
  EXPECT_EQ(checked_, 5000u);
}

// Rows are so long that segments are written before they are full. Moving the rows would free nothing, each time.
TEST_F(ColdLogTest, TheUnusedEndOfASegmentIsNoHole) {
  for (std::uint32_t i = 0; i < 20; ++i) Append(kWide, i);
  for (std::uint32_t i = 0; i < 40'000; ++i) Append(kNarrow, i);
  Settle();
  const std::uint64_t full = store_.disk_bytes();
  for (std::uint32_t i = 0; i < 40'000; ++i)
    if (i % 5 < 3) Free(kNarrow, i);
  Settle();
  EXPECT_LT(store_.disk_bytes(), full * 9 / 10);
  Read(kWide, 1);
  Read(kNarrow, 1);
}

// With many tables, each segment is written long before it is full.
TEST_F(ColdLogTest, ASegmentThatIsWrittenEarlyKeepsOnlyTheIdsOfItsRows) {
  constexpr std::uint32_t kTables = 26;
  constexpr ColdId kIds = 1 << 17;
  ColdLog log(&store_, this, {.segment_bytes = 8 * kSegmentBytes, .ids_max = kIds});
  for (std::uint32_t t = 0; t < kTables; ++t) log.AddTable(TableId(t), kNarrowWords);
  const std::uint32_t words[kNarrowWords] = {1, 2, 3};
  std::uint32_t rows = 0;
  Expected<ColdId> id = 0;
  std::set<ColdId> ids;
  while (true) {
    const std::uint32_t table = rng_.Chance(0.9) ? 0 : 1 + static_cast<std::uint32_t>(rng_.Below(kTables - 1));
    id = log.Append(TableId(table), {7, rows}, words);
    if (!id) break;
    if (table == 0) {
      ++rows;
      ASSERT_TRUE(ids.insert(*id).second);
      ASSERT_LT(*id, kIds);
    }
    store_.RunOne();
    ASSERT_TRUE(log.Poll());
  }
  EXPECT_GT(rows, kIds * 3 / 4);
  EXPECT_EQ(id.error().code, ErrorCode::kTooLarge);
  EXPECT_NE(id.error().message.find(" rows and 0 holes"), std::string::npos) << id.error().message;
}

// Next to a table of long rows, the holes of short rows are few bytes, but take ids of which there are few.
TEST_F(ColdLogTest, HolesAreCollectedBeforeATableRunsOutOfIds) {
  constexpr std::uint32_t kRows = 2000;
  ColdLog log(&store_, this, {.segment_bytes = kSegmentBytes, .ids_max = 1 << 13});
  log.AddTable(kNarrow, kNarrowWords);
  log.AddTable(kWide, kWideWords);
  const std::vector<std::uint32_t> wide(kWideWords);
  for (std::uint32_t i = 0; i < 400; ++i) {
    ASSERT_TRUE(log.WaitForRoom());
    ASSERT_TRUE(log.Append(kWide, {7, i}, wide.data()));
  }
  for (std::uint32_t i = 0; i < 40 * kRows; ++i) {
    const auto number = i < kRows ? i : static_cast<std::uint32_t>(rng_.Below(kRows));
    if (i >= kRows) log.Free(kNarrow, rows_.at({kNarrow, number}).id);
    ASSERT_TRUE(log.WaitForRoom());
    std::vector<std::uint32_t> words(kNarrowWords, number);
    const auto id = log.Append(kNarrow, {7, number}, words.data());
    ASSERT_TRUE(id) << id.error().message;
    rows_[{kNarrow, number}] = {*id, std::move(words)};
    if (i % 16 != 0) continue;
    store_.RunOne();
    ASSERT_TRUE(log.Poll());
  }
  EXPECT_GT(log.moved(), 0u);
}

// Rows are appended faster than they are written, all the time, and leave holes.
TEST_F(ColdLogTest, HolesAreBoundedIfTheStoreIsTooSlow) {
  constexpr std::uint32_t kRows = 4000;
  for (std::uint32_t i = 0; i < kRows; ++i) Append(kNarrow, i);
  Settle();
  const std::uint64_t full = store_.disk_bytes();
  std::uint64_t most = 0;
  for (std::uint32_t round = 0; round < 300; ++round) {
    for (int i = 0; i < 700; ++i) {
      const auto number = static_cast<std::uint32_t>(rng_.Below(kRows));
      Free(kNarrow, number);
      Append(kNarrow, number);
    }
    for (int i = 0; i < 10 && log_.HasRoom(); ++i) {
      for (int row = 0; row < 100; ++row) {
        const auto number = static_cast<std::uint32_t>(rng_.Below(kRows));
        Free(kNarrow, number);
        Append(kNarrow, number);
      }
    }
    ASSERT_TRUE(log_.Poll());
    store_.RunOne();
    most = std::max(most, store_.disk_bytes());
  }
  EXPECT_LT(most, 5 * full);
  Settle();
  Read(kNarrow, 1);
}

TEST_F(ColdLogTest, ARecordOfAnotherRowIsReportedAsDamage) {
  for (std::uint32_t i = 0; i < 40'000; ++i) Append(kNarrow, i);
  Settle();
  store_.Forge([](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0xff}); });
  for (std::uint32_t i = 0; i < 40'000; ++i)
    if (i % 8 != 0) Free(kNarrow, i);
  Status status = log_.Poll();
  for (int i = 0; i < 1000 && status; ++i) {
    store_.RunOne();
    status = log_.Poll();
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(log_.Poll().error().message, "no such row");  // final
}

// Operations in random order; the store completes its work at random times.
TEST_F(ColdLogTest, RowsAreIntactUnderRandomUse) {
  std::uint32_t next = 0;
  for (int step = 0; step < 40'000; ++step) {
    const TableId table = rng_.Chance(0.9) ? kNarrow : kWide;
    const double choice = rng_.Unit();
    if (choice < 0.5) {
      Append(table, next++);
    } else if (choice < 0.88 && rows_.size() > 2000) {
      auto row = rows_.lower_bound({table, static_cast<std::uint32_t>(rng_.Below(next))});
      if (row == rows_.end()) row = rows_.begin();
      const auto at = row->first;
      Free(at.first, at.second);
      if (rng_.Chance(0.5)) Append(at.first, at.second);  // the same row again, with another id
    } else if (choice < 0.9) {
      if (auto ids = SomeIds(table, 0.02); !ids.empty()) log_.Fetch(table, std::move(ids), this);
    } else if (choice < 0.91) {
      Read(table, 0.02);
    } else {
      store_.RunOne();
      ASSERT_TRUE(log_.Poll());
    }
  }
  for (const auto& at : std::vector(rows_.begin(), rows_.end()))
    if (rng_.Chance(0.9)) Free(at.first.first, at.first.second);
  Settle();
  Read(kNarrow, 1);
  Read(kWide, 1);
  EXPECT_GT(checked_, 1000u);
  EXPECT_GT(log_.moved(), 0u);
  EXPECT_EQ(log_.rows(), rows_.size());
  for (const auto& at : std::vector(rows_.begin(), rows_.end())) Free(at.first.first, at.first.second);
  Settle();
  EXPECT_EQ(log_.rows(), 0u);
}

TEST_F(ColdLogTest, MemoryIsBounded) {
  std::size_t most = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    Append(kNarrow, i);
    most = std::max(most, log_.memory_bytes());
  }
  // Two queued segments and one more, what is open, and a few bytes a segment.
  EXPECT_LT(most, 5 * kSegmentBytes + log_.segments() * 200);
  EXPECT_GT(log_.segments(), 20u);
}

TEST_F(ColdLogTest, AFailureIsFinalAndNamesItsReason) {
  for (std::uint32_t i = 0; i < 1000; ++i) Append(kNarrow, i);
  Settle();
  const auto ids = SomeIds(kNarrow, 1);
  std::vector<std::uint32_t> records(ids.size() * log_.record_words(kNarrow));
  store_.FailWith({ErrorCode::kIo, "tier/shard-0: no space left"});
  const auto read = log_.Read(kNarrow, ids, records.data());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "tier/shard-0: no space left");
  log_.Fetch(kNarrow, ids, this);
  EXPECT_TRUE(log_.Poll());
  store_.RunOne();
  for (int i = 0; i < 2; ++i) {
    const auto polled = log_.Poll();
    ASSERT_FALSE(polled);
    EXPECT_EQ(polled.error().code, ErrorCode::kIo);
  }
}

TEST_F(ColdLogTest, ADamagedSegmentIsNotRead) {
  for (std::uint32_t i = 0; i < 1000; ++i) Append(kNarrow, i);
  Settle();
  ASSERT_TRUE(store_.Damage());
  const auto ids = SomeIds(kNarrow, 1);
  std::vector<std::uint32_t> records(ids.size() * log_.record_words(kNarrow));
  const auto read = log_.Read(kNarrow, ids, records.data());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace tarn::server

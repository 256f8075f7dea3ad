// Shows that rows have the values last written to them, in memory or on disk, and that memory stays within any budget:
// creations, changes, reads, removals and fetches in random order, over several tables, with a slow store.
#include "server/tier/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "core/hash.h"
#include "sim/disks/memory_cold_store.h"

namespace tarn::server {
namespace {

constexpr std::uint32_t kPlaces = 3;
constexpr std::size_t kWords[] = {1, 7, 48};

class ResidencyTest : public testing::Test {
 protected:
  using Id = std::tuple<std::size_t, std::uint32_t, std::uint32_t>;  // table, place, number

  void Open(std::size_t limit, std::uint32_t rows_max = kResidentRowsMax) {
    auto store = std::make_unique<MemoryColdStore>([] {});
    store_ = store.get();
    tier_ = std::make_unique<Residency>(ResidencyOptions{.limit_bytes = limit, .places = kPlaces, .rows_max = rows_max},
                                        std::move(store));
    for (std::size_t t = 0; t < std::size(kWords); ++t)
      tables_.push_back(tier_->AddTable(TableId(static_cast<std::uint32_t>(t + 1)), kWords[t]));
  }
  void Write(const Id& id, float* row) {
    const auto [table, place, number] = id;
    std::vector<std::uint32_t>& words = model_[id];
    words.resize(kWords[table]);
    for (auto& word : words) word = static_cast<std::uint32_t>(rng_.Next());
    std::memcpy(row, words.data(), words.size() * 4);
  }
  void Birth(std::size_t table) {
    const auto place = static_cast<std::uint32_t>(rng_.Below(kPlaces));
    auto& free = free_[{table, place}];
    std::uint32_t number = next_[{table, place}];
    if (free.empty()) {
      ++next_[{table, place}];
    } else {
      number = free.back();
      free.pop_back();
    }
    if (!Note(tier_->Reserve(tables_[table], 1))) return;
    Write({table, place, number}, tables_[table]->Add(place, number));
  }
  std::vector<Id> Some(std::size_t table, std::size_t count) {
    std::vector<Id> some;
    for (std::size_t i = 0; i < count && !model_.empty(); ++i) {
      const auto place = static_cast<std::uint32_t>(rng_.Below(kPlaces));
      const double skewed = rng_.Unit() * rng_.Unit() * rng_.Unit();
      const auto number = static_cast<std::uint32_t>(skewed * next_[{table, place}]);
      if (model_.contains({table, place, number})) some.emplace_back(table, place, number);
    }
    std::ranges::sort(some);
    some.erase(std::unique(some.begin(), some.end()), some.end());
    return some;
  }
  // Uses rows as a message does.
  void Use(std::size_t table, std::span<const Id> ids, bool change) {
    ResidentRows* rows = tables_[table];
    if (!Note(tier_->Reserve(rows, ids.size()))) return;
    std::vector<RowOwner> cold;
    for (const auto& [t, place, number] : ids)
      if (rows->IsCold(place, number)) cold.push_back({place, number});
    if (!Note(tier_->LoadRows(rows, &cold))) return;
    for (const Id& id : ids) {
      const auto [t, place, number] = id;
      float* row = rows->Row(place, number);
      ASSERT_NE(row, nullptr);
      ASSERT_EQ(std::memcmp(row, model_[id].data(), model_[id].size() * 4), 0);
      rows->CountUse(place, number);
      if (!change) continue;
      rows->MarkChanged(place, number);
      Write(id, row);
    }
    tier_->CountUses(rows, ids.size());
  }
  void Fetch(std::size_t table, std::span<const Id> ids) {
    std::vector<RowOwner> owners;
    for (const auto& [t, place, number] : ids) owners.push_back({place, number});
    last_ = std::max(last_, tier_->Fetch(tables_[table], owners));
  }
  void CheckAll() {
    for (const auto& [id, words] : model_) {
      if (!failure_) return;
      Use(std::get<0>(id), {&id, 1}, false);
    }
  }
  // Keeps the first error. A test fails at its end if it has not taken the error.
  bool Note(const Status& status) {
    if (!status && failure_) failure_ = status;
    return status.has_value();
  }
  Status TakeFailure() { return std::exchange(failure_, {}); }
  void Poll() { Note(tier_->Poll()); }
  void TearDown() override { EXPECT_TRUE(failure_) << failure_.error().message; }
  void RunRandomly(int steps, bool with_budgets) {
    for (int step = 0; step < steps; ++step) {
      const std::size_t table = rng_.Below(std::size(kWords));
      const double choice = rng_.Unit();
      if (choice < 0.4) {
        Birth(table);
      } else if (choice < 0.8) {
        Use(table, Some(table, 1 + rng_.Below(60)), choice < 0.6);
      } else if (choice < 0.85) {
        for (const Id& id : Some(table, 2)) {
          const auto [t, place, number] = id;
          tables_[t]->Remove(place, number);
          free_[{t, place}].push_back(number);
          model_.erase(id);
        }
      } else if (choice < 0.92) {
        Fetch(table, Some(table, 40));
      } else if (choice < 0.93 && with_budgets) {
        tier_->SetLimit(60'000 + rng_.Below(400'000));
        tier_->SetOtherBytes(rng_.Below(100'000));
      } else {
        store_->RunOne();
        Poll();
        Note(tier_->Balance());
      }
    }
  }

  SplitMix rng_{5};
  MemoryColdStore* store_ = nullptr;
  std::unique_ptr<Residency> tier_;
  std::vector<ResidentRows*> tables_;
  std::map<Id, std::vector<std::uint32_t>> model_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::uint32_t> next_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::vector<std::uint32_t>> free_;
  FetchTicket last_ = 0;
  Status failure_;
};

TEST_F(ResidencyTest, RowsAreIntactUnderRandomUse) {
  Open(200'000);
  RunRandomly(20'000, false);
  EXPECT_GT(tier_->cold_rows(), 5000u);
  EXPECT_GT(tier_->counters().evicted, 10'000u);
  EXPECT_GT(tier_->counters().fetched, 1000u);
  CheckAll();
  EXPECT_EQ(tier_->resident_rows() + tables_[0]->cold() + tables_[1]->cold() + tables_[2]->cold(), model_.size());
}

TEST_F(ResidencyTest, RowsAreIntactWhileTheBudgetChanges) {
  Open(400'000);
  RunRandomly(20'000, true);
  CheckAll();
}

TEST_F(ResidencyTest, StaysWithinTheBudget) {
  Open(1 << 20);
  std::size_t most = 0;
  for (int i = 0; i < 60'000; ++i) {
    Birth(2);
    store_->RunOne();
    Poll();
    Note(tier_->Balance());
    most = std::max(most, tier_->memory_bytes());
  }
  EXPECT_GT(model_.size() * kWords[2] * 4, std::size_t{8} << 20);
  EXPECT_LE(most, (std::size_t{1} << 20) + (std::size_t{1} << 16));
}

TEST_F(ResidencyTest, FreesMemoryWhenOtherMemoryGrows) {
  Open(4 << 20);
  for (int i = 0; i < 15'000; ++i) Birth(2);
  const std::size_t before = tier_->memory_bytes();
  tier_->SetOtherBytes(2 << 20);
  for (int i = 0; i < 1000; ++i) {
    Note(tier_->Balance());
    store_->RunOne();
    Poll();
  }
  EXPECT_LE(tier_->memory_bytes(), std::size_t{2} << 20);
  EXPECT_GT(before, std::size_t{2} << 20);
  CheckAll();
}

// Rows that were only read are evicted without being written.
TEST_F(ResidencyTest, UnchangedRowsAreNotWrittenAgain) {
  Open(200'000);
  for (int i = 0; i < 3000; ++i) Birth(2);
  while (store_->under_way() != 0) store_->RunOne();
  Poll();
  const std::uint64_t disk = tier_->disk_bytes();
  for (int round = 0; round < 5; ++round) CheckAll();
  while (store_->under_way() != 0) store_->RunOne();
  Poll();
  EXPECT_LT(tier_->disk_bytes(), disk * 3 / 2);  // only rows that had never been written
  EXPECT_GT(tier_->counters().read_waiting, 5000u);
}

// A table with more uses per byte gets the memory of a table that is not used.
TEST_F(ResidencyTest, MemoryGoesToTheTableWithTheMostUsesPerByte) {
  Open(2 << 20);
  for (int i = 0; i < 20'000; ++i) Birth(2);
  for (int i = 0; i < 40'000; ++i) Birth(1);
  for (int round = 0; round < 20; ++round)
    for (std::uint32_t number = 0; number + 50 < next_[{1, 0}]; number += 50) {
      std::vector<Id> ids;
      ids.reserve(50);
      for (std::uint32_t i = 0; i < 50; ++i) ids.emplace_back(1, 0, number + i);
      Use(1, ids, false);
      store_->RunOne();
      Poll();
    }
  std::uint64_t in_memory = 0;
  for (std::uint32_t number = 0; number < next_[{1, 0}]; ++number) in_memory += tables_[1]->IsCold(0, number) ? 0 : 1;
  const std::uint64_t all = next_[{1, 0}];
  EXPECT_GT(in_memory, all * 8 / 10);
}

TEST_F(ResidencyTest, ATableWithAsManyRowsAsItMayHaveEvictsItsOwn) {
  Open(std::size_t{16} << 20, 4096);
  for (int i = 0; i < 3000; ++i) Birth(2);
  for (int i = 0; i < 10'000; ++i) Birth(1);
  EXPECT_LE(tables_[1]->resident(), 4096u);
  EXPECT_EQ(tables_[2]->resident(), 3000u);
}

TEST_F(ResidencyTest, RowsHaveUseCountsOnceHalfOfTheBudgetIsUsed) {
  Open(std::size_t{1} << 20);
  for (int i = 0; i < 200; ++i) Birth(1);
  std::vector<Id> all;
  all.reserve(model_.size());
  for (const auto& [id, words] : model_) all.push_back(id);
  tier_->CountUses(tables_[1], 0);
  const double before = tables_[1]->WorthOfByte();
  for (int i = 0; i < 4; ++i) Use(1, all, false);
  EXPECT_EQ(tables_[1]->WorthOfByte(), before);
  tier_->SetLimit(tier_->memory_bytes() * 3 / 2);
  tier_->CountUses(tables_[1], 0);
  for (int i = 0; i < 4; ++i) Use(1, all, false);
  EXPECT_GT(tables_[1]->WorthOfByte(), before);
}

// Fetched rows are in memory when their ticket has ended, and are not evicted first.
TEST_F(ResidencyTest, FetchedRowsAreInMemoryWhenTheTicketHasEnded) {
  Open(400'000);
  for (int i = 0; i < 10'000; ++i) Birth(2);
  while (store_->under_way() != 0) store_->RunOne();
  Poll();
  std::vector<Id> ids;
  for (const auto& [id, words] : model_)
    if (ids.size() < 50 && tables_[2]->IsCold(std::get<1>(id), std::get<2>(id))) ids.push_back(id);
  ASSERT_EQ(ids.size(), 50u);
  Fetch(2, ids);
  ASSERT_NE(last_, 0u);
  EXPECT_FALSE(tier_->Ended(last_));
  Fetch(2, ids);  // already being fetched
  EXPECT_EQ(tier_->counters().fetched, 50u);
  while (!tier_->Ended(last_)) {
    store_->RunOne();
    Poll();
  }
  for (int i = 0; i < 20; ++i) Birth(2);
  const std::uint64_t waited = tier_->counters().read_waiting;
  Use(2, ids, true);
  EXPECT_EQ(tier_->counters().read_waiting, waited);
}

TEST_F(ResidencyTest, RecordsForACutAreNotKeptInMemory) {
  Open(200'000);
  for (int i = 0; i < 5000; ++i) Birth(2);
  while (store_->under_way() != 0) store_->RunOne();
  Poll();
  std::vector<std::pair<ColdId, Id>> cold;
  for (const auto& [id, words] : model_)
    if (tables_[2]->IsCold(std::get<1>(id), std::get<2>(id)))
      cold.emplace_back(tables_[2]->cold_id(std::get<1>(id), std::get<2>(id)), id);
  std::ranges::sort(cold);
  std::vector<ColdId> ids;
  ids.reserve(cold.size());
  for (const auto& [at, id] : cold) ids.push_back(at);
  const std::uint64_t resident = tier_->resident_rows();
  tier_->cut().Fetch(tables_[2]->table(), ids);
  std::vector<std::uint32_t> records;
  EXPECT_FALSE(tier_->cut().Take(&records));
  while (store_->under_way() != 0) store_->RunOne();
  Poll();
  ASSERT_TRUE(tier_->cut().Take(&records));
  EXPECT_EQ(tier_->resident_rows(), resident);
  for (std::size_t i = 0; i < cold.size(); ++i)
    EXPECT_EQ(std::memcmp(records.data() + i * (kOwnerWords + kWords[2]) + kOwnerWords, model_[cold[i].second].data(),
                          kWords[2] * 4),
              0);
}

// Records name other rows, of this shard or of none, both when rows are read and when holes are collected.
TEST_F(ResidencyTest, ARecordOfAnotherRowIsAnError) {
  for (const std::uint32_t says : {0u, 1u, kPlaces, 0xffffffffu}) {
    for (const bool collect : {false, true}) {
      model_.clear();
      next_.clear();
      free_.clear();
      tables_.clear();
      Open(200'000);
      for (int i = 0; i < 10'000; ++i) Birth(2);
      while (store_->under_way() != 0) store_->RunOne();
      Poll();
      store_->Forge([&](std::span<std::byte> bytes) {
        for (std::size_t at = 0; at + 8 <= bytes.size(); at += 4 * (kOwnerWords + kWords[2])) {
          std::memcpy(&bytes[at], &says, 4);
          std::memcpy(&bytes[at + 4], &says, 4);
        }
      });
      if (!collect) CheckAll();
      for (const auto& [id, words] : model_)
        if (collect && std::get<2>(id) % 16 != 15) tables_[2]->Remove(std::get<1>(id), std::get<2>(id));
      for (int i = 0; i < 2000 && collect && failure_; ++i) {
        store_->RunOne();
        Poll();
      }
      const Status status = TakeFailure();
      ASSERT_FALSE(status) << says;
      EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
      EXPECT_TRUE(status.error().message.starts_with("memory: ")) << status.error().message;
      EXPECT_NE(status.error().message.find("table 3: row "), std::string::npos) << status.error().message;
    }
  }
}

// A table whose slots are nearly all free has no worth, and computing that does not scan all slots.
TEST_F(ResidencyTest, AnEmptyTableIsWorthNothing) {
  Open(64 << 20);
  for (int i = 0; i < 100'000; ++i) Birth(2);
  EXPECT_GT(tables_[2]->WorthOfByte(), 0);
  const auto last = std::prev(model_.end())->first;
  for (const auto& [id, words] : model_)
    if (id != last) tables_[2]->Remove(std::get<1>(id), std::get<2>(id));
  EXPECT_EQ(tables_[2]->resident(), 1u);
  EXPECT_EQ(tables_[2]->WorthOfByte(), 0);
}

TEST_F(ResidencyTest, ReturnsTheErrorOfAStoreThatFails) {
  Open(200'000);
  for (int i = 0; i < 5000; ++i) Birth(2);
  store_->FailWith({ErrorCode::kIo, "tier/shard-0: no space left"});
  for (int i = 0; i < 5000 && failure_; ++i) Birth(2);
  const Status status = TakeFailure();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().message, "tier/shard-0: no space left");
}

}  // namespace
}  // namespace tarn::server

// Shows that a row store with a memory budget gives the same bits as one without: pulls, pushes, loads, removals, cuts
// and hashes in random order, while the disk completes its work at random times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/hash.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "server/store/store.h"
#include "sim/disks/memory_cold_store.h"
#include "tests/unit/server/store/cut_all.h"

namespace tarn::server {
namespace {

constexpr std::uint64_t kSeed = 3;
constexpr std::uint32_t kBits = 2;
constexpr std::size_t kLimit = 200'000;

TableSpec Spec(std::uint32_t id, TableKind kind, std::uint32_t dim, const char* optimizer) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "table" + std::to_string(id);
  spec.kind = kind;
  spec.dim = dim;
  spec.rows = kind == TableKind::kDense ? 100 : 0;
  spec.optimizer.kind = optimizer;
  spec.initializer = {InitializerKind::kNormal, 0, 0.1f};
  return spec;
}

class RowStoreTierTest : public testing::Test {
 protected:
  RowStoreTierTest() {
    specs_ = {Spec(1, TableKind::kSparse, 16, "adam"), Spec(2, TableKind::kDense, 2, "sgd"),
              Spec(3, TableKind::kSparse, 1, "adagrad"), Spec(4, TableKind::kSparse, 9, "row_wise_adagrad")};
    // 16-bit rows with a life.
    specs_[3].row_codec = ValueCodec::kBf16;
    specs_[3].life = {.on = true, .admit_count = 2, .expire_clocks = 20, .sweep_clocks = 5};
    Open(kLimit);
  }

  static StoreOptions Options() {
    StoreOptions options{.job_seed = kSeed, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p + 1 < 1u << kBits; ++p) options.owned.push_back(PartitionId(p));  // all but the last
    return options;
  }
  void Open(std::size_t limit) {
    auto cold = std::make_unique<MemoryColdStore>([] {});
    cold_ = cold.get();
    tiered_ = std::make_unique<Store>(
        Options(), std::make_unique<Residency>(ResidencyOptions{.limit_bytes = limit, .places = (1u << kBits) - 1},
                                               std::move(cold)));
    plain_ = std::make_unique<Store>(Options());
    for (const TableSpec& spec : specs_) {
      ASSERT_TRUE(tiered_->AddTable(spec));
      ASSERT_TRUE(plain_->AddTable(spec));
    }
  }

  struct Keys {
    std::vector<Key> keys;
    std::vector<Section> sections;
  };
  Keys SomeKeys(const TableSpec& spec, std::size_t count) {
    std::map<PartitionId, std::vector<Key>> parts;
    const Positioner position(spec, TableSalt(kSeed, spec.name));
    for (std::size_t i = 0; i < count; ++i) {
      const double skewed = random_.Unit() * random_.Unit();
      const Key key = static_cast<Key>(skewed * (spec.kind == TableKind::kDense ? 100 : 4000));
      const PartitionId partition = PartitionOf(position(key), kBits);
      if (!plain_->Owns(partition)) continue;
      std::vector<Key>& mine = parts[partition];
      if (std::ranges::find(mine, key) == mine.end()) mine.push_back(key);
    }
    Keys some;
    for (const auto& [partition, mine] : parts) {
      some.sections.push_back({partition, std::uint32_t(mine.size()), {}});
      some.keys.insert(some.keys.end(), mine.begin(), mine.end());
    }
    return some;
  }
  const TableSpec& AnySpec() { return specs_[random_.Below(specs_.size())]; }

  void Push(std::size_t count) {
    const TableSpec& spec = AnySpec();
    Push(spec, SomeKeys(spec, count));
  }
  void Push(const TableSpec& spec, const Keys& some) {
    std::vector<float> gradients(some.keys.size() * spec.dim);
    for (float& g : gradients) g = static_cast<float>(random_.Unit()) - 0.5f;
    for (Store* rows : {tiered_.get(), plain_.get()})
      Note(rows->Apply(spec.id, some.sections, some.keys, ValueCodec::kFp32,
                       reinterpret_cast<const std::byte*>(gradients.data()), clock_));
  }
  void Pull(std::size_t count) {
    const TableSpec& spec = AnySpec();
    Pull(spec, SomeKeys(spec, count));
  }
  void Pull(const TableSpec& spec, const Keys& some) {
    std::vector<std::byte> out[2];
    for (int i = 0; i < 2; ++i) {
      out[i].resize(some.keys.size() * spec.dim * sizeof(float));
      Note((i == 0 ? tiered_ : plain_)->Gather(spec.id, some.sections, some.keys, ValueCodec::kFp32, out[i].data()));
    }
    ASSERT_EQ(out[0], out[1]);
  }
  void Stage() {
    const TableSpec& spec = AnySpec();
    const Keys some = SomeKeys(spec, 50);
    ticket_ = std::max(ticket_, tiered_->FetchCold(spec.id, some.sections, some.keys));
  }
  void Remove() {
    const Keys some = SomeKeys(specs_[0], 3);
    ASSERT_TRUE(tiered_->Remove(specs_[0].id, some.keys));
    ASSERT_TRUE(plain_->Remove(specs_[0].id, some.keys));
  }
  void Load() {
    const TableSpec& spec = specs_[random_.Chance(0.5) ? 0 : 2];  // without a life: records may be any bits
    const Keys some = SomeKeys(spec, 20);
    std::vector<std::uint32_t> records(some.keys.size() * RowWords(spec));
    for (auto& word : records) word = static_cast<std::uint32_t>(random_.Next());  // NaNs among them
    ASSERT_TRUE(tiered_->Load(spec.id, some.keys, records));
    ASSERT_TRUE(plain_->Load(spec.id, some.keys, records));
  }
  void Step() {
    const double choice = random_.Unit();
    if (choice < 0.4)
      Push(choice < 0.02 ? 3000 : 40);
    else if (choice < 0.7)
      Pull(choice < 0.42 ? 3000 : 40);
    else if (choice < 0.8)
      Stage();
    else if (choice < 0.83)
      Age();
    else
      Turn();
  }
  // Advances the time of both stores; their sweeps run at different times.
  void Age() {
    clock_ = clock_ + 1;
    for (Store* rows : {tiered_.get(), plain_.get()}) {
      rows->expiry().AdvanceClock(clock_);
      for (std::size_t slices = random_.Below(20); slices != 0 && rows->expiry().sweeping(); --slices)
        rows->expiry().Sweep(50);
    }
  }
  void Turn() {
    cold_->RunOne();
    Note(tiered_->Maintain(random_.Below(2) * 20'000));
  }
  // Completes the cut of the tiered store.
  void EndCut() {
    std::vector<CutRows> chunks;
    while (tiered_->cut().active() && failure_) {
      Note(tiered_->cut().Continue(100'000, &chunks));
      cold_->RunOne();
      Note(tiered_->Maintain(0));
    }
  }
  // Keeps the first error. A test fails at its end if it has not taken the error.
  void Note(const Status& status) {
    if (!status && failure_) failure_ = status;
  }
  Status TakeFailure() { return std::exchange(failure_, {}); }
  void TearDown() override { EXPECT_TRUE(failure_) << failure_.error().message; }
  // Makes a cut of both stores, with other operations between its slices.
  void Cut(CutRequest request, bool drop) {
    std::vector<TableRows> cuts[2] = {tiered_->cut().Begin(request), plain_->cut().Begin(request)};
    std::vector<CutRows> chunks[2];
    while (!ContinueCut(plain_.get(), 1 << 20, &chunks[1])) {
    }
    int slices = 0;
    for (; !ContinueCut(tiered_.get(), 5000, &chunks[0]); ++slices) {
      Step();
      if (tiered_->cut().waits()) Turn();
      if (drop && slices == 20) {
        tiered_->cut().Drop();
        return;
      }
    }
    for (int i = 0; i < 2; ++i) Collect(std::move(chunks[i]), &cuts[i]);
    ASSERT_EQ(cuts[0].size(), cuts[1].size());
    for (std::size_t t = 0; t < cuts[0].size(); ++t) {
      ASSERT_EQ(cuts[0][t].partitions.size(), cuts[1][t].partitions.size());
      for (std::size_t p = 0; p < cuts[0][t].partitions.size(); ++p)
        ASSERT_EQ(ByKey(cuts[0][t], p), ByKey(cuts[1][t], p)) << "table " << t;
    }
    EXPECT_EQ(tiered_->cut().state_hash(), plain_->cut().state_hash());
  }
  static std::map<Key, std::vector<std::uint32_t>> ByKey(const TableRows& table, std::size_t p) {
    const PartitionRows& rows = table.partitions[p];
    std::map<Key, std::vector<std::uint32_t>> by_key;
    for (std::size_t i = 0; i < rows.keys.size(); ++i)
      by_key[rows.keys[i]].assign(rows.rows.begin() + std::ptrdiff_t(i * table.row_words),
                                  rows.rows.begin() + std::ptrdiff_t((i + 1) * table.row_words));
    EXPECT_EQ(by_key.size(), rows.keys.size());
    return by_key;
  }

  void ExpectSame() {
    EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
    for (Store* rows : {tiered_.get(), plain_.get()})
      while (rows->expiry().sweeping()) rows->expiry().Sweep(1000);
    EXPECT_EQ(tiered_->row_count(), plain_->row_count());
    EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
  }

  std::vector<TableSpec> specs_;
  SplitMix random_{11};
  MemoryColdStore* cold_ = nullptr;
  std::unique_ptr<Store> tiered_, plain_;
  FetchTicket ticket_ = 0;
  Clock clock_{1};
  Status failure_;
};

TEST_F(RowStoreTierTest, GivesTheSameBits) {
  for (int i = 0; i < 4000; ++i) Step();
  ExpectSame();
  EXPECT_GT(tiered_->tier()->counters().evicted, 1000u);
  EXPECT_GT(tiered_->tier()->counters().fetched, 100u);
  EXPECT_GT(tiered_->tier()->counters().read_waiting, 100u);
  EXPECT_GT(tiered_->tier()->cold_rows(), 500u);
}

TEST_F(RowStoreTierTest, LoadsAndRemovesRowsThatAreOnDisk) {
  for (int i = 0; i < 3000; ++i) {
    Step();
    if (i % 10 == 0) Remove();
    if (i % 10 == 5) Load();
  }
  ExpectSame();
}

// A checkpoint larger than the budget is loaded.
TEST_F(RowStoreTierTest, LoadsMoreThanFits) {
  const TableSpec& spec = specs_[0];
  std::size_t most = 0;
  for (Key first = 0; first < 20'000; first += 500) {
    std::vector<Key> keys;
    for (Key key = first; key < first + 500; ++key) keys.push_back(key);
    std::vector<std::uint32_t> records(keys.size() * RowWords(spec));
    for (auto& word : records) word = static_cast<std::uint32_t>(random_.Next());
    ASSERT_TRUE(tiered_->Load(spec.id, keys, records));
    ASSERT_TRUE(plain_->Load(spec.id, keys, records));
    most = std::max<std::size_t>(most, tiered_->tier()->memory_bytes());
    while (cold_->under_way() != 0) cold_->RunOne();
  }
  EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
  EXPECT_LT(most, kLimit * 3 / 2);  // with room for the index
}

TEST_F(RowStoreTierTest, CutsHoldTheRowsAtTheirBeginning) {
  for (int i = 0; i < 1500; ++i) Step();
  bool base = false;
  for (int n = 0; n < 24; ++n) {
    const CutScope scope = n % 3 == 0 ? CutScope::kAll : CutScope::kChanged;
    const bool drop = n % 4 == 3;
    Cut({.scope = scope, .base_is_previous_cut = base, .hash_all = n % 2 == 0}, drop);
    base = !drop && n % 5 != 4;
    for (int i = 0; i < 30; ++i) Step();
  }
  EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
}

// Every row changes before the cut reaches it.
TEST_F(RowStoreTierTest, EarlyCopiesOfACutAreSpilledToDisk) {
  for (const bool drop : {false, true}) {
    Open(kLimit);
    for (int i = 0; i < 1500; ++i) Step();
    while (cold_->under_way() != 0) Turn();
    const std::uint64_t before = tiered_->tier()->disk_bytes();
    std::vector<TableRows> cuts[2] = {tiered_->cut().Begin(), plain_->cut().Begin()};
    std::vector<CutRows> chunks[2];
    while (!ContinueCut(plain_.get(), 1 << 20, &chunks[1])) {
    }
    std::size_t most = 0;
    for (int i = 0; i < 40; ++i) {
      for (const TableSpec& spec : specs_) Push(spec, SomeKeys(spec, 500));
      most = std::max(most, tiered_->cut().held_bytes());
      Turn();
    }
    EXPECT_LT(most, kLimit / 8);
    EXPECT_GT(tiered_->cut().early_bytes(), 2 * kLimit);
    if (drop) {
      tiered_->cut().Drop();
    } else {
      while (!ContinueCut(tiered_.get(), 5000, &chunks[0]))
        if (tiered_->cut().waits()) Turn();
      for (int i = 0; i < 2; ++i) Collect(std::move(chunks[i]), &cuts[i]);
      for (std::size_t t = 0; t < cuts[0].size(); ++t)
        for (std::size_t p = 0; p < cuts[0][t].partitions.size(); ++p)
          ASSERT_EQ(ByKey(cuts[0][t], p), ByKey(cuts[1][t], p)) << "table " << t;
    }
    EXPECT_EQ(tiered_->cut().held_bytes(), 0u);
    while (cold_->under_way() != 0) Turn();
    EXPECT_LT(tiered_->tier()->disk_bytes(), before + kLimit);
    EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
  }
}

TEST_F(RowStoreTierTest, ADamagedEarlyCopyIsAnError) {
  for (int i = 0; i < 1500; ++i) Step();
  (void)tiered_->cut().Begin();
  for (int i = 0; i < 40; ++i) Push(specs_[0], SomeKeys(specs_[0], 500));
  while (cold_->under_way() != 0) Turn();
  cold_->Forge([](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0xff}); });
  EndCut();
  const Status status = TakeFailure();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
}

// Our clients do not send such messages.
TEST_F(RowStoreTierTest, AMessageMayNameAKeyTwice) {
  const TableSpec& spec = specs_[0];
  for (int i = 0; i < 1500; ++i) Step();
  for (int i = 0; i < 200; ++i) {
    Keys some = SomeKeys(spec, 60);
    std::vector<Key> twice;
    for (const Key key : some.keys) twice.insert(twice.end(), 2, key);
    some.keys = twice;
    for (Section& section : some.sections) section.count *= 2;
    Pull(spec, some);
    Push(spec, some);
    Turn();
    Step();
  }
  ExpectSame();
}

// Keys are looked up in groups, before earlier groups are processed. The first occurrence of a key removes its expired
// row.
TEST_F(RowStoreTierTest, AKeyMayOccurAgainInALaterGroup) {
  const TableSpec& spec = specs_[3];
  const auto keys_from = [&](Key first, Key end) {
    std::map<PartitionId, std::vector<Key>> parts;
    const Positioner position(spec, TableSalt(kSeed, spec.name));
    for (Key key = first; key < end; ++key) parts[PartitionOf(position(key), kBits)].push_back(key);
    Keys some;
    for (auto& [partition, mine] : parts)
      if (plain_->Owns(partition) && mine.size() > some.keys.size()) {
        some.keys = std::move(mine);
        some.sections = {{partition, std::uint32_t(some.keys.size()), {}}};
      }
    return some;
  };
  Keys some = keys_from(0, 2000);
  ASSERT_GE(some.keys.size(), 130u);
  for (int i = 0; i < 2; ++i) Push(spec, some);
  for (int i = 0; i < 100; ++i) Age();
  for (std::size_t i = 32; i < some.keys.size(); ++i) {
    Keys twice = some;
    std::swap(twice.keys[i], twice.keys[0]);
    twice.keys[i] = twice.keys[0];
    for (int again = 0; again < 2; ++again) Push(spec, some);
    for (int time = 0; time < 30; ++time) {
      clock_ = clock_ + 1;
      for (Store* rows : {tiered_.get(), plain_.get()}) rows->expiry().AdvanceClock(clock_);
    }
    Push(spec, twice);
    if (i % 16 == 0) Turn();
  }
  ExpectSame();
}

// A sweep during the cut would read rows that the cut still needs one by one, and block the shard.
TEST_F(RowStoreTierTest, ASweepWaitsForACut) {
  for (int i = 0; i < 1500; ++i) Step();
  while (cold_->under_way() != 0) Turn();
  while (tiered_->expiry().sweeping()) tiered_->expiry().Sweep(1000);
  (void)tiered_->cut().Begin();
  tiered_->expiry().AdvanceClock(clock_ + 100);
  const std::uint64_t reads = cold_->reads();
  tiered_->expiry().Sweep(100'000);
  EXPECT_EQ(cold_->reads(), reads);
  EXPECT_FALSE(tiered_->expiry().sweeping());
  tiered_->cut().Drop();
  EXPECT_TRUE(tiered_->expiry().sweeping());
}

TEST_F(RowStoreTierTest, TheSmallestBudgetSuffices) {
  Open(1);
  for (int i = 0; i < 1000; ++i) Step();
  EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
}

TEST_F(RowStoreTierTest, IfAllRowsFitNoneIsEvicted) {
  Open(64 << 20);
  for (int i = 0; i < 2000; ++i) Step();
  EXPECT_EQ(tiered_->StateHash().value(), plain_->StateHash().value());
  EXPECT_EQ(tiered_->tier()->counters().evicted, 0u);
  EXPECT_EQ(tiered_->tier()->disk_bytes(), 0u);
}

TEST_F(RowStoreTierTest, AFailingDiskIsAnError) {
  for (int i = 0; i < 1000; ++i) Step();
  ASSERT_GT(tiered_->tier()->cold_rows(), 0u);
  cold_->FailWith({ErrorCode::kIo, "tier: no space left"});
  const Keys all = SomeKeys(specs_[0], 3000);
  std::vector<std::byte> out(all.keys.size() * 16 * 4);
  Note(tiered_->Gather(specs_[0].id, all.sections, all.keys, ValueCodec::kFp32, out.data()));
  for (int i = 0; i < 100 && failure_; ++i) Turn();
  const Status status = TakeFailure();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "tier: no space left");
}

TEST_F(RowStoreTierTest, TheErrorForARecordOfAnotherRowNamesTableKeyAndPlace) {
  for (const bool cut : {false, true}) {
    Open(kLimit);
    for (int i = 0; i < 1500; ++i) Step();
    while (cold_->under_way() != 0) Turn();
    ASSERT_GT(tiered_->tier()->cold_rows(), 0u);
    cold_->Forge([](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0xff}); });
    if (cut) {
      (void)tiered_->cut().Begin();
      EndCut();
    } else if (const auto hash = tiered_->StateHash(); !hash) {
      Note(std::unexpected(hash.error()));
    }
    const Status status = TakeFailure();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    const std::string& text = status.error().message;
    for (const char* part : {"memory: read another row instead of that of table 'table", "': key ", " in partition "})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tarn::server

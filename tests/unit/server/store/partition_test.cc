// Shows that a partition can be created, loaded, cut, hashed and dropped: alone, and while its store serves the other
// partitions. Copies of a partition have equal hashes, and the memory of a dropped one is reused for later rows.
#include "server/store/partition.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/hash.h"
#include "core/position.h"
#include "core/row_layout.h"
#include "server/store/store.h"
#include "sim/disks/memory_cold_store.h"
#include "tests/unit/server/store/cut_all.h"

namespace tarn::server {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::uint32_t kBits = 2;
constexpr PartitionId kMoved(1);
constexpr Incarnation kWorker(10);

TableSpec Spec(std::uint32_t id, TableKind kind, bool life) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "table" + std::to_string(id);
  spec.kind = kind;
  spec.dim = 4;
  spec.rows = kind == TableKind::kDense ? 100 : 0;
  spec.optimizer.kind = "adagrad";
  spec.initializer = {InitializerKind::kNormal, 0, 0.1f};
  if (life) spec.life = {.on = true, .admit_count = 2, .expire_clocks = 20, .sweep_clocks = 5};
  return spec;
}

const std::vector<TableSpec>& Specs() {
  static const std::vector<TableSpec> specs = {Spec(1, TableKind::kSparse, false), Spec(2, TableKind::kDense, false),
                                               Spec(3, TableKind::kSparse, true)};
  return specs;
}

std::vector<PartitionId> AllPartitions() {
  std::vector<PartitionId> all;
  for (std::uint32_t p = 0; p < 1u << kBits; ++p) all.push_back(PartitionId(p));
  return all;
}

std::unique_ptr<Store> MakeStore(std::vector<PartitionId> owned, std::size_t tier_bytes = 0) {
  const auto places = static_cast<std::uint32_t>(owned.size());
  std::unique_ptr<Residency> tier;
  if (tier_bytes != 0)
    tier = std::make_unique<Residency>(ResidencyOptions{.limit_bytes = tier_bytes, .places = places},
                                       std::make_unique<MemoryColdStore>());
  auto store = std::make_unique<Store>(
      StoreOptions{.job_seed = kSeed, .partition_bits = kBits, .owned = std::move(owned)}, std::move(tier));
  for (const TableSpec& spec : Specs()) EXPECT_TRUE(store->AddTable(spec));
  return store;
}

// A push of random keys, of which a store gets those that it owns.
struct Push {
  TableSpec spec;
  std::map<PartitionId, std::vector<Key>> keys;
  Clock clock;

  void To(Store* store) const {
    std::vector<Section> sections;
    std::vector<Key> flat;
    std::vector<float> gradients;
    for (const auto& [partition, mine] : keys) {
      if (!store->Owns(partition)) continue;
      sections.push_back({partition, static_cast<std::uint32_t>(mine.size()), {}});
      for (const Key key : mine) {
        flat.push_back(key);
        for (std::uint32_t i = 0; i < spec.dim; ++i) gradients.push_back(static_cast<float>(key % 7) - 3);
      }
    }
    ASSERT_TRUE(store->CheckKeys(spec.id, sections, flat));
    ASSERT_TRUE(store->Apply(spec.id, sections, flat, ValueCodec::kFp32,
                             reinterpret_cast<const std::byte*>(gradients.data()), clock));
    for (const Section& section : sections) store->Find(section.partition)->watermarks().Advance(kWorker);
    store->expiry().AdvanceClock(clock);
  }
};

class Traffic {
 public:
  Push Next() {
    Push push{Specs()[random_.Below(Specs().size())], {}, Clock(clock_++ / 4)};
    const Positioner position(push.spec, TableSalt(kSeed, push.spec.name));
    for (int i = 0; i < 40; ++i) {
      const Key key = random_.Below(push.spec.rows != 0 ? push.spec.rows : 500);
      std::vector<Key>& mine = push.keys[PartitionOf(position(key), kBits)];
      if (std::ranges::find(mine, key) == mine.end()) mine.push_back(key);
    }
    return push;
  }

 private:
  SplitMix random_{5};
  std::uint64_t clock_ = 0;
};

// Loads the chunks of a snapshot or a cut. `newest`: loads the counts of keys too; in a chain of increments, only the
// newest has the current ones.
void LoadAll(const std::vector<CutRows>& chunks, Store* to, bool newest = true) {
  for (const auto& [table, rows] : chunks) {
    ASSERT_TRUE(to->Load(table, rows.keys, rows.rows));
    if (!newest || rows.seen.empty()) continue;
    ASSERT_TRUE(to->LoadSeen(table, rows.seen));
  }
}

// Copies a partition to `to`, where it must be empty.
void CopyPartition(Store* from, PartitionId partition, Store* to) {
  std::vector<CutRows> chunks;
  (void)from->cut().BeginSnapshot(partition);
  while (!ContinueCut(from, 1 << 20, &chunks)) {
  }
  LoadAll(chunks, to);
  for (const auto& [worker, watermark] : from->Find(partition)->watermarks().entries())
    to->Find(partition)->watermarks().Set(worker, watermark);
}

TEST(PartitionTest, IsCreatedLoadedHashedAndReleasedByItself) {
  StoreContext context;
  context.partition_bits = 0;
  const Table table(Spec(1, TableKind::kSparse, false), kSeed, 0);
  const std::vector<Key> keys = {1, 2, 3};
  std::vector<std::uint32_t> records(keys.size() * table.row_words());
  for (std::size_t i = 0; i < records.size(); ++i) records[i] = static_cast<std::uint32_t>(i);

  Partition partition(PartitionId(0), 0, &context), copy(PartitionId(0), 1, &context);
  EXPECT_EQ(partition.row_count(), 0u);
  EXPECT_EQ(partition.Find(table.id()), nullptr);
  EXPECT_TRUE(partition.Load(table, keys, records));
  EXPECT_EQ(partition.row_count(), keys.size());
  EXPECT_NE(partition.StateHash().value(), copy.StateHash().value());
  EXPECT_TRUE(copy.Load(table, keys, records));
  EXPECT_EQ(partition.StateHash().value(), copy.StateHash().value());
  partition.Release();
}

TEST(PartitionTest, ACutLoadsToAnEqualPartition) {
  StoreContext context;
  const Table table(Spec(1, TableKind::kSparse, false), kSeed, 0);
  const std::vector<Key> keys = {7, 8, 9};
  const std::vector<std::uint32_t> records(keys.size() * table.row_words(), 0x3f800000);
  Partition partition(PartitionId(0), 0, &context), copy(PartitionId(0), 1, &context);
  ASSERT_TRUE(partition.Load(table, keys, records));
  context.cut.active = true;
  partition.BeginCut();
  Fragment& fragment = *partition.Find(table.id());
  std::vector<CutRows> chunks;
  while (fragment.cut().open()) fragment.ContinueCut(1, &chunks);
  context.cut.active = false;
  for (const CutRows& chunk : chunks) ASSERT_TRUE(copy.Load(table, chunk.rows.keys, chunk.rows.rows));
  EXPECT_EQ(copy.row_count(), keys.size());
  EXPECT_EQ(copy.StateHash().value(), partition.StateHash().value());
}

class PartitionUnderTrafficTest : public testing::TestWithParam<std::size_t> {};

// A partition moves from one store to another and back while both get pushes. Together they hold the rows of a single
// store that gets all pushes.
TEST_P(PartitionUnderTrafficTest, MovesBetweenStores) {
  const auto all = MakeStore(AllPartitions());
  const auto left = MakeStore(AllPartitions(), GetParam()), right = MakeStore({}, GetParam());
  Traffic traffic;
  const auto push = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const Push next = traffic.Next();
      for (Store* store : {all.get(), left.get(), right.get()}) next.To(store);
    }
  };
  for (int round = 0; round < 6; ++round) {
    Store* from = round % 2 == 0 ? left.get() : right.get();
    Store* to = round % 2 == 0 ? right.get() : left.get();
    push(50);
    to->AddPartition(kMoved);
    CopyPartition(from, kMoved, to);
    EXPECT_EQ(to->Find(kMoved)->StateHash().value(), from->Find(kMoved)->StateHash().value()) << "round " << round;
    EXPECT_EQ(to->Find(kMoved)->row_count(), from->Find(kMoved)->row_count()) << "round " << round;
    EXPECT_EQ(to->Find(kMoved)->watermarks().entries(), from->Find(kMoved)->watermarks().entries());
    from->DropPartition(kMoved);
    EXPECT_FALSE(from->Owns(kMoved));
    for (int i = 0; i < 10 && from->expiry().sweeping(); ++i) from->expiry().Sweep(1'000'000);
    EXPECT_FALSE(from->expiry().sweeping()) << "a dropped fragment waits for no sweep";
    EXPECT_TRUE(to->Owns(kMoved));
  }
  push(10);
  EXPECT_EQ(all->row_count(), left->row_count() + right->row_count());
  const Watermarks& last = right->Owns(kMoved) ? right->Find(kMoved)->watermarks() : left->Find(kMoved)->watermarks();
  EXPECT_EQ(last.entries(), all->Find(kMoved)->watermarks().entries());
}

// The partition gets pushes while it is copied slice by slice. The copy has its state at the beginning of the snapshot.
TEST_P(PartitionUnderTrafficTest, ASnapshotIsThePartitionAsItWasWhenItBegan) {
  const auto store = MakeStore(AllPartitions(), GetParam()), copy = MakeStore({kMoved});
  Traffic traffic;
  for (int i = 0; i < 300; ++i) traffic.Next().To(store.get());
  copy->expiry().AdvanceClock(*store->expiry().clock());
  const std::uint64_t before = store->Find(kMoved)->StateHash().value();
  const std::uint64_t rows = store->Find(kMoved)->row_count();
  std::vector<CutRows> chunks;
  (void)store->cut().BeginSnapshot(kMoved);
  int slices = 1;
  for (; !ContinueCut(store.get(), 500, &chunks); ++slices) {
    traffic.Next().To(store.get());
    ASSERT_TRUE(store->Maintain(0));
  }
  EXPECT_GT(slices, 10);
  EXPECT_NE(store->Find(kMoved)->StateHash().value(), before);
  LoadAll(chunks, copy.get());
  EXPECT_EQ(copy->StateHash().value(), before);
  EXPECT_EQ(copy->row_count(), rows);
}

// An incremental checkpoint has all changes since its base, even if partitions were snapshotted in between.
TEST_P(PartitionUnderTrafficTest, ASnapshotTakesNoChangesFromTheNextCheckpoint) {
  const auto store = MakeStore(AllPartitions(), GetParam()), copy = MakeStore(AllPartitions());
  Traffic traffic;
  const auto push = [&](int count) {
    for (int i = 0; i < count; ++i) traffic.Next().To(store.get());
  };
  const auto cut = [&](CutRequest request, bool newest) {
    std::vector<CutRows> chunks;
    (void)store->cut().Begin(request);
    while (!ContinueCut(store.get(), 1 << 20, &chunks)) ASSERT_TRUE(store->Maintain(0));
    for (const auto& [table, rows] : chunks) ASSERT_TRUE(copy->Remove(table, rows.removed));
    LoadAll(chunks, copy.get(), newest);
  };
  push(100);
  cut({.scope = CutScope::kAll}, false);
  push(100);
  const auto scratch = MakeStore({kMoved});
  CopyPartition(store.get(), kMoved, scratch.get());
  push(20);
  cut({.scope = CutScope::kChanged, .base_is_previous_cut = true}, true);
  EXPECT_EQ(copy->StateHash().value(), store->StateHash().value());
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutABudget, PartitionUnderTrafficTest, testing::Values(0u, 100'000u));

TEST(PartitionTest, MemoryOfADroppedPartitionIsReused) {
  const auto store = MakeStore(AllPartitions());
  Traffic traffic;
  std::vector<Push> pushes;
  for (int i = 0; i < 200; ++i) pushes.push_back(traffic.Next());
  const auto push_all = [&] {
    for (const Push& push : pushes) push.To(store.get());
  };
  push_all();
  const std::uint64_t before = store->memory_bytes();
  for (int round = 0; round < 10; ++round) {
    store->DropPartition(kMoved);
    store->AddPartition(kMoved);
    push_all();
  }
  EXPECT_LT(store->memory_bytes(), before + before / 10);
}

}  // namespace
}  // namespace tarn::server

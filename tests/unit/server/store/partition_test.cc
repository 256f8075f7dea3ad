// A partition can be created, loaded, cut, hashed and dropped by itself: alone, and while the store that owns it goes
// on serving the others. Copies of a partition have equal hashes, and the memory of a dropped one serves later rows.
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

TableSpec Spec(std::uint32_t id, TableKind kind, bool life) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = "table" + std::to_string(id);
  spec.kind = kind;
  spec.dim = 4;
  spec.rows = kind == TableKind::kDense ? 100 : 0;
  spec.optimizer.kind = OptimizerKind::kAdagrad;
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
    store->Apply(spec.id, sections, flat, ValueCodec::kFp32, reinterpret_cast<const std::byte*>(gradients.data()),
                 clock);
    store->AdvanceClock(clock);
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

// Copies the rows of one partition that a cut of `from` has into `to`.
void CopyPartition(Store* from, PartitionId partition, Store* to) {
  for (const TableRows& table : CutAll(from)) {
    for (const PartitionRows& rows : table.partitions) {
      if (rows.partition != partition) continue;
      ASSERT_TRUE(to->Load(table.spec.id, rows.keys, rows.rows));
      ASSERT_TRUE(to->LoadSeen(table.spec.id, rows.seen));
    }
  }
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
  EXPECT_NE(partition.StateHash(), copy.StateHash());
  EXPECT_TRUE(copy.Load(table, keys, records));
  EXPECT_EQ(partition.StateHash(), copy.StateHash());
  partition.Release();
}

TEST(PartitionTest, ItsCutIsWhatItHeld) {
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
  EXPECT_EQ(copy.StateHash(), partition.StateHash());
}

class PartitionUnderTrafficTest : public testing::TestWithParam<std::size_t> {};

// A partition goes from one store to another and back while both get pushes: together they hold what one store holds
// that got all.
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
    EXPECT_EQ(to->Find(kMoved)->StateHash(), from->Find(kMoved)->StateHash()) << "round " << round;
    EXPECT_EQ(to->Find(kMoved)->row_count(), from->Find(kMoved)->row_count()) << "round " << round;
    from->DropPartition(kMoved);
    EXPECT_FALSE(from->Owns(kMoved));
    for (int i = 0; i < 10 && from->sweeping(); ++i) from->ContinueSweep(1'000'000);
    EXPECT_FALSE(from->sweeping()) << "a dropped fragment waits for no sweep";
    EXPECT_TRUE(to->Owns(kMoved));
  }
  push(10);
  EXPECT_EQ(all->row_count(), left->row_count() + right->row_count());
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutABudget, PartitionUnderTrafficTest, testing::Values(0u, 100'000u));

TEST(PartitionTest, MemoryOfADroppedOneServesLaterRows) {
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

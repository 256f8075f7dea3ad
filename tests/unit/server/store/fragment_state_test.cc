// Shows that a partition's version is the number of sections applied to it, table by table, that rules get the delay of
// their section and the state of their partition, and that cuts, hashes and loads keep both.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "core/position.h"
#include "server/store/store.h"
#include "tests/unit/server/store/cut_all.h"

namespace tarn::server {
namespace {

constexpr std::uint64_t kSeed = 3;
constexpr std::uint32_t kBits = 2;

TableSpec TableOf(std::uint32_t id, const char* kind) {
  TableSpec spec;
  spec.id = TableId(id);
  spec.name = kind;
  spec.dim = 1;
  spec.optimizer = {.kind = kind, .learning_rate = 1};
  spec.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  return spec;
}

class FragmentStateTest : public testing::Test {
 protected:
  static std::unique_ptr<Store> MakeStore() {
    StoreOptions options{.job_seed = kSeed, .partition_bits = kBits, .owned = {}};
    for (std::uint32_t p = 0; p < 1u << kBits; ++p) options.owned.push_back(PartitionId(p));
    auto rows = std::make_unique<Store>(options);
    for (const TableSpec& spec : {kSgd, kAware, kAdaptive, kCompensated, kThreshold}) EXPECT_TRUE(rows->AddTable(spec));
    return rows;
  }
  // A key of the partition.
  static Key KeyIn(const TableSpec& spec, std::uint32_t partition, std::uint32_t number = 0) {
    const Positioner position(spec, TableSalt(kSeed, spec.name));
    for (Key key = 0;; ++key)
      if (PartitionOf(position(key), kBits) == PartitionId(partition) && number-- == 0) return key;
  }
  struct Part {
    std::uint32_t partition;
    Version pulled = kNoVersion;
  };
  static void Push(Store* rows, const TableSpec& spec, const std::vector<Part>& parts, const float* pulled = nullptr,
                   float gradient = 1.0f) {
    std::vector<Section> sections;
    std::vector<Key> keys;
    for (const auto& [partition, version] : parts) {
      sections.push_back({PartitionId(partition), 1, Sequence(1), version});
      keys.push_back(KeyIn(spec, partition));
    }
    const std::vector<float> gradients(keys.size(), gradient);
    ASSERT_TRUE(rows->Apply(spec.id, sections, keys,
                            {.gradients = reinterpret_cast<const std::byte*>(gradients.data()),
                             .pulled = reinterpret_cast<const std::byte*>(pulled),
                             .clock = Clock(0)}));
  }
  static Version VersionOf(const Store& rows, const TableSpec& spec, std::uint32_t partition) {
    return rows.Find(PartitionId(partition))->VersionOf(spec.id);
  }
  static float Value(const Store& rows, const TableSpec& spec, std::uint32_t partition) {
    return rows.Values(spec.id, KeyIn(spec, partition)).value()[0];
  }

  static inline const TableSpec kSgd = TableOf(1, "sgd"), kAware = TableOf(2, "staleness_aware_sgd"),
                                kAdaptive = TableOf(3, "delay_adaptive_sgd"), kCompensated = TableOf(4, "dc_asgd"),
                                kThreshold = TableOf(5, "delay_threshold_sgd");
  std::unique_ptr<Store> rows_ = MakeStore();
};

TEST_F(FragmentStateTest, VersionsCountTheSectionsOfEachTable) {
  EXPECT_EQ(VersionOf(*rows_, kSgd, 1), Version(0));
  Push(rows_.get(), kSgd, {{0}, {1}});
  Push(rows_.get(), kSgd, {{1}});
  Push(rows_.get(), kAware, {{1}});
  EXPECT_EQ(VersionOf(*rows_, kSgd, 0), Version(1));
  EXPECT_EQ(VersionOf(*rows_, kSgd, 1), Version(2));
  EXPECT_EQ(VersionOf(*rows_, kSgd, 2), Version(0));
  EXPECT_EQ(VersionOf(*rows_, kAware, 1), Version(1));
}

TEST_F(FragmentStateTest, AnEmptySectionDoesNotCount) {
  const Section empty{PartitionId(1), 0, Sequence(1), Version(0)};
  ASSERT_TRUE(rows_->Apply(kSgd.id, {&empty, 1}, {}, {.clock = Clock(0)}));
  EXPECT_EQ(VersionOf(*rows_, kSgd, 1), Version(0));
  EXPECT_TRUE(rows_->delays().histogram().empty());
}

TEST_F(FragmentStateTest, DelaysAreCountedIfThePushHasAVersion) {
  Push(rows_.get(), kSgd, {{0, Version(0)}, {1}});
  Push(rows_.get(), kSgd, {{0, Version(0)}, {1, Version(1)}});
  Push(rows_.get(), kSgd, {{0, Version(9)}});  // newer than the partition's version: no delay
  EXPECT_EQ(rows_->delays().histogram(), (std::vector<std::uint64_t>{3, 1}));
  rows_->ForgetCounters();
  EXPECT_TRUE(rows_->delays().histogram().empty());
}

TEST_F(FragmentStateTest, TheLastBucketCountsAllLongerDelays) {
  ASSERT_TRUE(rows_->LoadState(kSgd.id, PartitionId(0), {Version(100'000), {}}));
  Push(rows_.get(), kSgd, {{0, Version(100'000 - limits::kDelayBucketsMax + 1)}});
  EXPECT_EQ(rows_->delays().histogram().size(), limits::kDelayBucketsMax);
  Push(rows_.get(), kSgd, {{0, Version(0)}});
  ASSERT_EQ(rows_->delays().histogram().size(), limits::kDelayBucketsMax);
  EXPECT_EQ(rows_->delays().histogram().back(), 2u);
}

TEST_F(FragmentStateTest, EachSectionHasItsOwnDelay) {
  for (int i = 0; i < 4; ++i) Push(rows_.get(), kAware, {{0, Version(i)}});  // by 1 each
  Push(rows_.get(), kAware, {{0, Version(0)}, {1, Version(0)}, {2, Version(0)}});
  EXPECT_EQ(Value(*rows_, kAware, 0), -4.25f) << "a delay of 4";
  EXPECT_EQ(Value(*rows_, kAware, 1), -1.0f);
  EXPECT_EQ(Value(*rows_, kAware, 2), -1.0f);
}

TEST_F(FragmentStateTest, GradientsThatTheRuleDiscardsAreCounted) {
  for (int i = 0; i < 20; ++i) Push(rows_.get(), kThreshold, {{0, Version(i)}});
  EXPECT_EQ(rows_->counters().discarded, 0u);
  Push(rows_.get(), kThreshold, {{0, Version(4)}, {1, Version(0)}});
  EXPECT_EQ(rows_->counters().discarded, 1u) << "a delay of 16, and one of 0";
  Push(rows_.get(), kThreshold, {{0, Version(6)}});
  EXPECT_EQ(rows_->counters().discarded, 1u) << "a delay of 15";
  EXPECT_EQ(Value(*rows_, kThreshold, 0), -21.0f);
  EXPECT_EQ(Value(*rows_, kThreshold, 1), -1.0f);
}

TEST_F(FragmentStateTest, RulesGetTheRowsAsTheyWerePulled) {
  float pulled[] = {0, 0};
  Push(rows_.get(), kCompensated, {{0}, {1}}, pulled);
  EXPECT_EQ(Value(*rows_, kCompensated, 1), -1.0f);
  pulled[0] = -1;  // pulled after the first step
  Push(rows_.get(), kCompensated, {{0}, {1}}, pulled);
  EXPECT_EQ(Value(*rows_, kCompensated, 0), -2.0f);
  EXPECT_FLOAT_EQ(Value(*rows_, kCompensated, 1), -2.0f + 0.04f);
}

TEST_F(FragmentStateTest, ARowPulledAsNanIsSkipped) {
  const float pulled[] = {0, std::numeric_limits<float>::quiet_NaN()};
  Push(rows_.get(), kCompensated, {{0}, {1}}, pulled);
  EXPECT_EQ(Value(*rows_, kCompensated, 0), -1.0f);
  EXPECT_EQ(Value(*rows_, kCompensated, 1), 0.0f);
  EXPECT_EQ(rows_->counters().not_finite, 1u);
}

TEST_F(FragmentStateTest, ARowThatIsNotFiniteInBothWaysIsCountedOnce) {
  const float pulled[] = {std::numeric_limits<float>::quiet_NaN()};
  Push(rows_.get(), kCompensated, {{0}}, pulled, std::numeric_limits<float>::infinity());
  EXPECT_EQ(rows_->counters().not_finite, 1u);
}

TEST_F(FragmentStateTest, ACutHasTheStateAtItsBeginning) {
  for (int i = 0; i < 4; ++i) Push(rows_.get(), kAdaptive, {{0, Version(0)}, {1, Version(i)}});
  Push(rows_.get(), kSgd, {{2}});
  const std::uint64_t hash = *rows_->StateHash();
  rows_->cut().Begin({.hash_all = true});
  Push(rows_.get(), kAdaptive, {{0, Version(0)}});
  std::vector<CutRows> chunks;
  while (rows_->cut().active()) ASSERT_TRUE(rows_->cut().Continue(1 << 20, &chunks));
  EXPECT_EQ(rows_->cut().state_hash(), hash);
  EXPECT_NE(*rows_->StateHash(), hash);

  const auto loaded = MakeStore();
  for (const auto& [table, part] : chunks) {
    ASSERT_TRUE(loaded->Load(table, part.keys, part.rows));
    if (part.state) {
      ASSERT_TRUE(loaded->LoadState(table, part.partition, *part.state));
    }
  }
  EXPECT_EQ(*loaded->StateHash(), hash);
  EXPECT_EQ(VersionOf(*loaded, kAdaptive, 0), Version(4));
  EXPECT_EQ(VersionOf(*loaded, kSgd, 2), Version(1));
  Push(loaded.get(), kAdaptive, {{0, Version(0)}});
  EXPECT_EQ(*loaded->StateHash(), *rows_->StateHash()) << "it goes on with the same bits";
}

// The version is the number of applied sections, which is no part of the model.
TEST_F(FragmentStateTest, HashesCoverTheStateOfRulesButNotTheVersion) {
  const auto other = MakeStore();
  Push(rows_.get(), kSgd, {{0}});
  Push(other.get(), kSgd, {{0}});
  const Section apart{PartitionId(0), 1, Sequence(1), kNoVersion};
  const Key key = KeyIn(kSgd, 0);
  const float nothing = 0;
  ASSERT_TRUE(other->Apply(kSgd.id, {&apart, 1}, {&key, 1},
                           {.gradients = reinterpret_cast<const std::byte*>(&nothing), .clock = Clock(0)}));
  EXPECT_EQ(*rows_->StateHash(), *other->StateHash());
  Push(rows_.get(), kAdaptive, {{0, Version(0)}});
  Push(other.get(), kAdaptive, {{0, Version(0)}});
  EXPECT_EQ(*rows_->StateHash(), *other->StateHash());
  ASSERT_TRUE(other->LoadState(kAdaptive.id, PartitionId(0), {Version(1), {0x3f800000, 0x3f800000}}));
  EXPECT_NE(*rows_->StateHash(), *other->StateHash());
}

TEST_F(FragmentStateTest, AStateOfAnotherRuleIsRefused) {
  const Status status = rows_->LoadState(kSgd.id, PartitionId(1), {Version(1), {1, 2}});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(status.error().message, "table 'sgd': a state of 2 floats in partition 1, expected 0");
}

}  // namespace
}  // namespace tarn::server

// Shows that a GPU's plans equal the host's except for the order of keys within a partition: the same unique keys and
// runs, and an index in the GPU's memory that maps every occurrence to its key. For any keys, salts and partitions, for
// several tables over the same keys, with the bias and without, until they are released. Skipped, with the reason, if
// there is no GPU.
#include <algorithm>
#include <set>

#include "core/hash.h"
#include "tests/unit/kernels/gpu_test_util.h"
#include "worker/train/batch_planner.h"
#include "worker/train/device_planner.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kDim = 4;

std::vector<Key> RandomKeys(std::size_t n, std::uint64_t distinct, SplitMix& random) {
  std::vector<Key> keys(n);
  for (Key& key : keys) key = Mix64(random.Below(distinct));
  if (n > 2) keys[n / 2] = 0, keys[n - 1] = ~Key{0};
  return keys;
}

std::vector<Key> Sorted(std::span<const Key> keys) {
  std::vector<Key> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted);
  return sorted;
}

class GpuPlannerTest : public kernels::GpuFixture {
 protected:
  std::unique_ptr<DevicePlanner> MakePlanner(std::uint32_t bits) {
    auto planner = MakeDevicePlanner(0, bits);
    EXPECT_TRUE(planner.has_value()) << planner.error().message;
    return std::move(*planner);
  }

  // Expects that `plan` agrees with the host's plan of these keys.
  void ExpectPlanOf(std::span<const Key> keys, const Positioner& positioner, std::uint32_t bits, const Plan& plan) {
    Plan host;
    Planner(bits).Make(TableId(3), kDim, positioner, keys, &host);
    EXPECT_EQ(plan.table, TableId(3));
    EXPECT_EQ(plan.dim, kDim);
    ASSERT_EQ(plan.runs.size(), host.runs.size());
    ASSERT_EQ(plan.keys.size(), host.keys.size());
    for (std::size_t r = 0; r < plan.runs.size(); ++r) {
      const PlanRun& run = host.runs[r];
      ASSERT_EQ(plan.runs[r].partition, run.partition);
      ASSERT_EQ(plan.runs[r].begin, run.begin);
      ASSERT_EQ(plan.runs[r].count, run.count);
      ASSERT_EQ(Sorted(std::span(plan.keys).subspan(run.begin, run.count)),
                Sorted(std::span(host.keys).subspan(run.begin, run.count)));
    }
    EXPECT_TRUE(plan.index.empty());
    ASSERT_NE(plan.placed, nullptr);
    EXPECT_EQ(plan.placed->gpu, 0);
    ASSERT_EQ(plan.placed->occurrences, keys.size());
    EXPECT_EQ(Fetch(plan.placed->keys, plan.keys.size()), plan.keys);
    const std::vector<std::uint32_t> index = Fetch(plan.placed->index, keys.size());
    for (std::size_t o = 0; o < keys.size(); ++o) {
      ASSERT_LT(index[o], plan.keys.size());
      ASSERT_EQ(plan.keys[index[o]], keys[o]) << "occurrence " << o;
    }
  }
};

TEST_F(GpuPlannerTest, AgreesWithTheHostForAnyKeysAndPartitions) {
  SplitMix random(1);
  for (const std::uint32_t bits : {0u, 1u, 6u, 12u}) {
    const auto planner = MakePlanner(bits);
    Plan plan;  // reused: an earlier batch must leave no trace
    for (const std::uint64_t distinct : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{5000}, ~std::uint64_t{0}})
      for (const std::size_t n : {1000, 0, 1, 2, 33, 70'001, 100}) {
        const std::vector<Key> keys = RandomKeys(n, distinct, random);
        const Positioner positioner(TableSpec{.kind = TableKind::kSparse}, random.Next());
        ASSERT_TRUE(planner->Bring(keys));
        const Status made = planner->Make(TableId(3), kDim, positioner, n, &plan);
        ASSERT_TRUE(made) << made.error().message;
        ASSERT_NO_FATAL_FAILURE(ExpectPlanOf(keys, positioner, bits, plan));
      }
  }
}

// Several plans are in use at once, larger and smaller ones, like those of batches in flight.
TEST_F(GpuPlannerTest, PlansStayUntilTheyAreReleased) {
  constexpr std::uint32_t kBits = 5;
  SplitMix random(2);
  struct Made {
    std::vector<Key> keys;
    Positioner positioner;
    Plan plan;
  };
  const auto planner = MakePlanner(kBits);
  std::vector<Made> all(6);
  for (int round = 0; round < 40; ++round) {
    const std::vector<Key> keys = RandomKeys(random.Below(3000), 1 + random.Below(2000), random);
    ASSERT_TRUE(planner->Bring(keys));
    for (int table = 0; table < 2; ++table) {
      Made& made = all[random.Below(all.size())];
      const std::size_t n = keys.size() - random.Below(2) * (keys.size() / 3);
      made.keys.assign(keys.begin(), keys.begin() + std::ptrdiff_t(n));
      made.positioner = Positioner(TableSpec{.kind = TableKind::kSparse}, random.Next());
      ASSERT_TRUE(planner->Make(TableId(3), kDim, made.positioner, n, &made.plan));
    }
    Made& gone = all[random.Below(all.size())];
    planner->TakeBack(&gone.plan);
    EXPECT_EQ(gone.plan.placed, nullptr);
    for (const Made& made : all) {
      if (made.plan.placed == nullptr) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectPlanOf(made.keys, made.positioner, kBits, made.plan));
    }
  }
}

// The plans of batches, with a dense table between two sparse ones. Batches that the GPU plans alternate with smaller
// ones, which the host plans.
TEST_F(GpuPlannerTest, PlansBatchesOfSeveralTablesWithTheBias) {
  constexpr std::uint32_t kBits = 6;
  Job job;
  job.job.seed = 12;
  std::vector<TableUse> tables(3);
  const RowsNeeded needed[] = {RowsNeeded::kBatchKeysAndBias, RowsNeeded::kAll, RowsNeeded::kBatchKeys};
  for (std::size_t t = 0; t < tables.size(); ++t) {
    tables[t].rows = needed[t];
    tables[t].spec.id = TableId(3);
    tables[t].spec.name = "table" + std::to_string(t);
    tables[t].spec.dim = kDim;
  }
  BatchPlanner planner(job, tables, {.partition_bits = kBits, .gpu = 0, .device_keys_min = 500});
  SplitMix random(5);
  std::vector<Plan> plans;
  std::set<const PlacedPlan*> placed;
  for (const std::size_t n : {500u, 499u, 2000u, 0u, 0u, 700u, 1u, 500u}) {
    std::vector<Key> keys = RandomKeys(n, 300, random);
    const std::vector<Key> of_batch = keys;
    const Status made = planner.Make(&keys, &plans);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(keys, of_batch);
    EXPECT_TRUE(plans[1].keys.empty());
    keys.push_back(kBiasKey);
    for (const std::size_t t : {0, 2}) {
      const std::span<const Key> planned = std::span(keys).first(n + (t == 0 ? 1 : 0));
      const Positioner positioner(tables[t].spec, TableSalt(job.job.seed, tables[t].spec.name));
      ASSERT_EQ(plans[t].placed != nullptr, n >= 500);
      if (n >= 500) {
        placed.insert(plans[t].placed);
        ASSERT_NO_FATAL_FAILURE(ExpectPlanOf(planned, positioner, kBits, plans[t]));
        continue;
      }
      ASSERT_EQ(plans[t].index.size(), planned.size());
      for (std::size_t o = 0; o < planned.size(); ++o) ASSERT_EQ(plans[t].keys[plans[t].index[o]], planned[o]);
    }
  }
  EXPECT_EQ(placed.size(), 2u) << "what was taken back is used again";
}

}  // namespace
}  // namespace tarn::worker

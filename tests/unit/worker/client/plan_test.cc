// Shows that a plan contains each key once, grouped by partition in order of first occurrence, that its index maps
// every occurrence to its key, that summing rows agrees with a simple loop, and that the caller's order is kept.
#include "worker/client/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/hash.h"

namespace tarn::worker {
namespace {

Positioner MakePositioner(TableKind kind, std::uint64_t rows) {
  TableSpec spec;
  spec.kind = kind;
  spec.rows = rows;
  return Positioner(spec, 0x1234567);
}

std::vector<Key> SomeKeys(std::size_t n, std::uint64_t space, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<Key> keys(n);
  for (Key& key : keys) key = random.Below(space);
  return keys;
}

// Makes the plan by its definition.
Plan NaivePlan(const Positioner& positioner, std::uint32_t bits, const std::vector<Key>& keys) {
  std::map<std::uint32_t, std::vector<Key>> by_partition;
  std::map<Key, std::uint32_t> place;
  for (Key key : keys)
    if (place.emplace(key, 0).second) by_partition[PartitionOf(positioner(key), bits).value].push_back(key);
  Plan plan;
  for (const auto& [partition, list] : by_partition) {
    plan.runs.push_back({PartitionId(partition), std::uint32_t(plan.keys.size()), std::uint32_t(list.size())});
    for (Key key : list) {
      place[key] = std::uint32_t(plan.keys.size());
      plan.keys.push_back(key);
    }
  }
  for (Key key : keys) plan.index.push_back(place[key]);
  return plan;
}

void ExpectSame(const Plan& plan, const Plan& model) {
  EXPECT_EQ(plan.keys, model.keys);
  EXPECT_EQ(plan.index, model.index);
  ASSERT_EQ(plan.runs.size(), model.runs.size());
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    EXPECT_EQ(plan.runs[i].partition, model.runs[i].partition);
    EXPECT_EQ(plan.runs[i].begin, model.runs[i].begin);
    EXPECT_EQ(plan.runs[i].count, model.runs[i].count);
  }
}

TEST(Plan, AgreesWithTheDefinitionForAnySizesAndDuplicates) {
  for (std::uint32_t bits : {0u, 1u, 6u, 12u}) {
    Planner planner(bits);
    Plan plan;  // reused: an earlier batch must leave no trace
    for (std::uint64_t space : {1ull, 7ull, 1000ull, 1ull << 60}) {
      for (std::size_t n : {0u, 1u, 2u, 31u, 5000u, 100u}) {
        const auto keys = SomeKeys(n, space, space * 31 + n);
        const Positioner positioner = MakePositioner(TableKind::kSparse, 0);
        planner.Make(TableId(3), 4, positioner, keys, &plan);
        ExpectSame(plan, NaivePlan(positioner, bits, keys));
        EXPECT_EQ(plan.table, TableId(3));
        EXPECT_EQ(plan.dim, 4u);
      }
    }
  }
}

TEST(Plan, DenseKeysStayInOrderAndInNeighbouringPartitions) {
  Planner planner(4);
  Plan plan;
  std::vector<Key> keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const Positioner positioner = MakePositioner(TableKind::kDense, keys.size());
  planner.Make(TableId(1), 8, positioner, keys, &plan);
  ExpectSame(plan, NaivePlan(positioner, 4, keys));
  EXPECT_EQ(plan.runs.size(), 16u);
}

TEST(Plan, KeysAtTheEndsOfTheRange) {
  Planner planner(6);
  Plan plan;
  const std::vector<Key> keys = {~0ull, 0, ~0ull, 1, 0, 1ull << 63};
  const Positioner positioner = MakePositioner(TableKind::kSparse, 0);
  planner.Make(TableId(1), 1, positioner, keys, &plan);
  ExpectSame(plan, NaivePlan(positioner, 6, keys));
}

TEST(Plan, SumsDuplicatesInOrderOfOccurrence) {
  constexpr std::uint32_t kDim = 5;
  Planner planner(3);
  Plan plan;
  const auto keys = SomeKeys(3000, 200, 9);
  planner.Make(TableId(1), kDim, MakePositioner(TableKind::kSparse, 0), keys, &plan);
  SplitMix random(4);
  std::vector<float> rows(keys.size() * kDim);
  for (float& value : rows) value = float(random.Unit() - 0.5);

  std::vector<float> unique(plan.keys.size() * kDim, 99.0f), expected(unique.size(), 0.0f);
  SumDuplicates(plan, kDim, rows.data(), unique.data());
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::uint32_t d = 0; d < kDim; ++d) expected[plan.index[i] * kDim + d] += rows[i * kDim + d];
  EXPECT_EQ(unique, expected);
}

TEST(Plan, TheCallersOrderNamesEachOccurrenceOnce) {
  Planner planner(5);
  Plan plan;
  CallerOrder order;
  for (std::size_t distinct : {1u, 7u, 200u, 100'000u}) {
    const auto keys = SomeKeys(3000, distinct, 11);
    planner.Make(TableId(1), 3, MakePositioner(TableKind::kSparse, 0), keys, &plan, &order);
    ASSERT_EQ(order.first.size(), plan.keys.size());
    ASSERT_EQ(order.first.size() + order.repeats.size(), keys.size());
    std::vector<int> named(keys.size());
    for (std::size_t i = 0; i < plan.keys.size(); ++i) {
      ++named[order.first[i]];
      EXPECT_EQ(keys[order.first[i]], plan.keys[i]);
      EXPECT_EQ(std::ranges::find(keys, plan.keys[i]) - keys.begin(), order.first[i]) << "the first occurrence";
    }
    for (const CallerOrder::Repeat& repeat : order.repeats) {
      ++named[repeat.occurrence];
      EXPECT_EQ(keys[repeat.occurrence], keys[repeat.first]);
      EXPECT_EQ(order.first[plan.index[repeat.occurrence]], repeat.first);
    }
    EXPECT_EQ(std::ranges::count(named, 1), std::ptrdiff_t(keys.size()));
  }
}

TEST(Plan, AllocatesNothingOnceWarm) {
  Planner planner(6);
  Plan plan;
  const auto keys = SomeKeys(20'000, 3'000, 1);
  const Positioner positioner = MakePositioner(TableKind::kSparse, 0);
  planner.Make(TableId(1), 4, positioner, keys, &plan);
  const Key* data = plan.keys.data();
  const std::uint32_t* index = plan.index.data();
  const PlanRun* runs = plan.runs.data();
  for (std::uint64_t seed = 2; seed < 6; ++seed) {
    planner.Make(TableId(1), 4, positioner, SomeKeys(19'000, 2'500, seed), &plan);
    EXPECT_EQ(plan.keys.data(), data);
    EXPECT_EQ(plan.index.data(), index);
    EXPECT_EQ(plan.runs.data(), runs);
  }
}

}  // namespace
}  // namespace tarn::worker

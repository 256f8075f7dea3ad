// Shows that several threads can plan at once, that their plans equal those of one planner, and that invalid keys are
// refused.
#include "worker/runtime/planner_pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/hash.h"
#include "core/limits.h"

namespace tarn::worker {
namespace {

constexpr std::uint32_t kBits = 4;

TEST(PlannerPoolTest, ThreadsPlanAtOnce) {
  TableSpec spec;
  spec.kind = TableKind::kSparse;
  const Positioner positioner(spec, 7);
  PlannerPool pool(kBits);
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      SplitMix random(t);
      for (int i = 0; i < 50; ++i) {
        std::vector<Key> keys(100);
        for (Key& key : keys) key = random.Below(60);
        Plan plan, expected;
        ASSERT_TRUE(pool.Make(spec, positioner, keys, &plan, nullptr));
        Planner(kBits).Make(spec.id, spec.dim, positioner, keys, &expected);
        EXPECT_EQ(plan.keys, expected.keys);
        EXPECT_EQ(plan.index, expected.index);
      }
    });
}

TEST(PlannerPoolTest, RefusesAKeyBeyondADenseTable) {
  TableSpec spec;
  spec.kind = TableKind::kDense;
  spec.name = "weights";
  spec.rows = 10;
  PlannerPool pool(kBits);
  Plan plan;
  EXPECT_TRUE(pool.Make(spec, Positioner(spec, 7), std::vector<Key>{9, 0}, &plan, nullptr));
  const Status status = pool.Make(spec, Positioner(spec, 7), std::vector<Key>{9, 10}, &plan, nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "table 'weights' has the rows 0..9, but a key is 10");
}

}  // namespace
}  // namespace tarn::worker

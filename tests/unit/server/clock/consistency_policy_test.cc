// Shows when each consistency policy alone answers a pull and closes a clock, and that the registry finds them by name.
#include "server/clock/consistency_policy.h"

#include <gtest/gtest.h>

#include "server/clock/table_policies.h"

namespace tarn::server {
namespace {

constexpr Incarnation kWorker(10);
constexpr TableId kTable(1);

TableSpec SpecOf(ConsistencyMode mode, ApplyMode apply = ApplyMode::kAggregated, std::uint32_t staleness = 0) {
  TableSpec spec;
  spec.id = kTable;
  spec.consistency = {mode, staleness, apply, 0};
  return spec;
}

WorkerEntry LiveWorker(std::uint32_t rank, std::uint64_t incarnation) {
  return {WorkerRank(rank), Incarnation(incarnation), WorkerState::kLive, Clock(0), Clock(0)};
}

// Two workers, the slower of which has ticked to `minimum`.
Cohort CohortAt(std::uint64_t minimum) {
  Cohort cohort;
  cohort.Adopt({LiveWorker(0, 10), LiveWorker(1, 11)});
  cohort.Tick(Incarnation(10), {Clock(minimum), {}, {}});
  cohort.Tick(Incarnation(11), {Clock(minimum + 1), {}, {}});
  return cohort;
}

bool MayAnswer(const TableSpec& spec, std::uint64_t use, std::uint64_t minimum) {
  return MakePolicy(spec).value()->MayAnswer(kWorker, Clock(use), CohortAt(minimum));
}

TEST(ConsistencyPolicyTest, APullWaitsForTheClocksThatItsModeRequires) {
  const auto bsp = SpecOf(ConsistencyMode::kBsp);
  EXPECT_TRUE(MayAnswer(bsp, 5, 5));
  EXPECT_FALSE(MayAnswer(bsp, 6, 5));
  const auto ssp = SpecOf(ConsistencyMode::kSsp, ApplyMode::kImmediate, 3);
  EXPECT_TRUE(MayAnswer(ssp, 8, 5));
  EXPECT_FALSE(MayAnswer(ssp, 9, 5));
  EXPECT_TRUE(MayAnswer(ssp, 2, 0)) << "before the first clock nothing is waited for";
  EXPECT_TRUE(MayAnswer(SpecOf(ConsistencyMode::kAsp, ApplyMode::kImmediate), 1'000, 0));
}

// Worker 11 reached clock 2 at time 1,000 us and takes 100 us a clock. Worker 10 reached clock `own` at time `at` and
// takes `own_us` a clock.
Cohort Paces(std::uint64_t own, TimeUs own_us, TimeUs at = 1'000) {
  Cohort cohort;
  cohort.Adopt({LiveWorker(0, 10), LiveWorker(1, 11)});
  cohort.Tick(Incarnation(10), {Clock(own - 1), {}, {}}, at - own_us);
  cohort.Tick(Incarnation(10), {Clock(own), {}, {}}, at);
  cohort.Tick(Incarnation(11), {Clock(1), {}, {}}, 900);
  cohort.Tick(Incarnation(11), {Clock(2), {}, {}}, 1'000);
  return cohort;
}

TEST(ConsistencyPolicyTest, WithinTheStalenessRangeAFastWorkerRunsOnUntilTheSlowestTicks) {
  TableSpec spec = SpecOf(ConsistencyMode::kSsp, ApplyMode::kImmediate, 2);
  const auto wanted = [&](const Cohort& cohort, std::uint64_t use) {
    return MakePolicy(spec).value()->WantedClock(kWorker, Clock(use), cohort).value;
  };
  EXPECT_EQ(wanted(Paces(5, 30), 5), 3u) << "no range: it waits for a tick";
  spec.consistency.staleness_range = 3;
  EXPECT_EQ(wanted(Paces(4, 30), 4), 2u) << "within the bound";
  EXPECT_EQ(wanted(Paces(5, 30), 5), 2u) << "after three more clocks, at 1,090, it waits less than now";
  EXPECT_EQ(wanted(Paces(7, 30), 7), 2u) << "the last clock that the range allows";
  EXPECT_EQ(wanted(Paces(8, 30), 8), 6u) << "beyond the range";
  EXPECT_EQ(wanted(Paces(5, 60, 1'090), 5), 3u) << "a tick of the slowest at 1,100 is nearer now than after a clock";
  EXPECT_EQ(wanted(Paces(5, 0), 5), 3u) << "its pace is not known";
  Cohort joined = Paces(5, 30);
  WorkerEntry third = LiveWorker(2, 12);
  third.join = Clock(2);
  joined.Adopt({LiveWorker(0, 10), LiveWorker(1, 11), third});
  EXPECT_EQ(wanted(joined, 5), 3u) << "the pace of the slowest is not known";
}

TEST(ConsistencyPolicyTest, AClockClosesOnceEveryWorkerHasFinishedIt) {
  const Cohort cohort = CohortAt(5);
  for (const ConsistencyMode mode : {ConsistencyMode::kBsp, ConsistencyMode::kSsp}) {
    const auto policy = MakePolicy(SpecOf(mode)).value();
    EXPECT_TRUE(policy->MayClose(Clock(4), {}, cohort));
    EXPECT_FALSE(policy->MayClose(Clock(5), {}, cohort));
    const ConsistencyPolicy::Count count = policy->Choose(Clock(4), {}, cohort);
    EXPECT_TRUE(count.counts.empty());
    EXPECT_EQ(count.divisor, 2u);
  }
}

// One of two workers has finished clock 5.
TEST(ConsistencyPolicyTest, WithBackupWorkersAClockClosesWithoutTheSlowest) {
  TableSpec spec = SpecOf(ConsistencyMode::kBsp);
  spec.consistency.backup_workers = 1;
  const auto policy = MakePolicy(spec).value();
  const Cohort cohort = CohortAt(5);
  EXPECT_TRUE(policy->MayAnswer(kWorker, Clock(6), cohort));
  EXPECT_FALSE(policy->MayAnswer(kWorker, Clock(7), cohort));
  EXPECT_TRUE(policy->MayClose(Clock(5), {}, cohort));
  EXPECT_FALSE(policy->MayClose(Clock(6), {}, cohort));
  EXPECT_TRUE(policy->Discards(kWorker, Clock(5), cohort));
  EXPECT_FALSE(policy->Discards(kWorker, Clock(6), cohort));
  const Contribution gathered[] = {{.incarnation = kWorker, .keys = {}, .values = {}},
                                   {.incarnation = Incarnation(11), .keys = {}, .values = {}},
                                   {.incarnation = kWorker, .keys = {}, .action = PushAction::kAssign, .values = {}}};
  const ConsistencyPolicy::Count count = policy->Choose(Clock(5), gathered, cohort);
  EXPECT_EQ(count.counts, (std::vector{false, true, true})) << "an assignment always counts";
  EXPECT_EQ(count.divisor, 1u);
}

TEST(ConsistencyPolicyTest, OnlyAggregatedPushesOfAClosedClockAreDiscarded) {
  const Cohort cohort = CohortAt(5);
  const auto aggregated = MakePolicy(SpecOf(ConsistencyMode::kSsp)).value();
  EXPECT_TRUE(aggregated->Discards(kWorker, Clock(4), cohort));
  EXPECT_FALSE(aggregated->Discards(kWorker, Clock(5), cohort));
  const auto immediate = MakePolicy(SpecOf(ConsistencyMode::kSsp, ApplyMode::kImmediate)).value();
  EXPECT_FALSE(immediate->Discards(kWorker, Clock(0), cohort));
}

TEST(ConsistencyPolicyTest, TheDivisorOfAnEmptySumIsOne) {
  EXPECT_EQ(MakePolicy(SpecOf(ConsistencyMode::kBsp)).value()->Choose(Clock(0), {}, Cohort()).divisor, 1u);
}

TEST(ConsistencyPolicyTest, TheErrorOfAnUnknownNameListsTheKnownOnes) {
  static constexpr PolicyEntry kOther[] = {{"other", nullptr}, {"another", nullptr}};
  const auto policy = MakePolicy(SpecOf(ConsistencyMode::kSsp), kOther);
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(policy.error().message, "consistency policy 'ssp': expected one of other, another");
}

TEST(ConsistencyPolicyTest, EveryModeHasAPolicy) {
  for (const ConsistencyMode mode : {ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp})
    EXPECT_TRUE(MakePolicy(SpecOf(mode)));
}

TEST(TablePoliciesTest, TablesWithDifferentSettingsHaveDifferentPolicies) {
  TablePolicies policies;
  TableSpec spec = SpecOf(ConsistencyMode::kSsp, ApplyMode::kImmediate, 2);
  ASSERT_TRUE(policies.Put(spec));
  const ConsistencyPolicy* first = &policies[kTable];
  ASSERT_TRUE(policies.Put(spec));
  EXPECT_EQ(&policies[kTable], first) << "what a policy knows stays";
  spec.consistency.staleness = 4;
  ASSERT_TRUE(policies.Put(spec));
  EXPECT_EQ(policies[kTable].WantedClock(kWorker, Clock(9), Cohort()), Clock(5));
}

}  // namespace
}  // namespace tarn::server

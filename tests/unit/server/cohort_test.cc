// Membership and clocks by themselves: the minimum clock never goes back, and a clock's cohort is what the view says.
#include "server/cohort.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

WorkerEntry Entry(std::uint32_t rank, std::uint64_t incarnation, std::uint64_t join,
                  WorkerState state = WorkerState::kLive, std::uint64_t end = 0) {
  return {WorkerRank(rank), Incarnation(incarnation), state, Clock(join), Clock(end)};
}

TEST(CohortTest, TheMinimumIsTheSlowestsAndNeverGoesBack) {
  Cohort cohort;
  EXPECT_EQ(cohort.minimum(), Clock(0));
  cohort.Adopt({Entry(0, 1, 5), Entry(1, 2, 5)});
  EXPECT_EQ(cohort.minimum(), Clock(5));
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(9), {}, {}});
  cohort.Tick(Incarnation(2), tarn::Tick{Clock(7), {}, {}});
  EXPECT_EQ(cohort.minimum(), Clock(7));
  EXPECT_EQ(cohort.maximum(), Clock(9));
  cohort.Tick(Incarnation(2), tarn::Tick{Clock(6), {}, {}});
  EXPECT_EQ(cohort.minimum(), Clock(7));
  cohort.Adopt({Entry(0, 1, 5), Entry(1, 2, 5), Entry(2, 3, 4)});
  EXPECT_EQ(cohort.minimum(), Clock(7));
  cohort.Adopt({});
  EXPECT_EQ(cohort.minimum(), Clock(7));
}

TEST(CohortTest, AnOlderTickLeavesThePositionAlone) {
  Cohort cohort;
  cohort.Adopt({Entry(0, 1, 0)});
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(4), {LeaseId(2), 40}, {}});
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(3), {LeaseId(1), 30}, {}});
  EXPECT_EQ(cohort.members().at(Incarnation(1)).position, (DataPosition{LeaseId(2), 40}));
}

TEST(CohortTest, SizeCountsWhoTheClockWaitsFor) {
  Cohort cohort;
  cohort.Adopt(
      {Entry(0, 1, 0), Entry(1, 2, 0, WorkerState::kFencing), Entry(2, 3, 0, WorkerState::kEnded, 4), Entry(2, 4, 10)});
  EXPECT_EQ(cohort.Size(Clock(3)), 3u);
  EXPECT_EQ(cohort.Size(Clock(4)), 2u);
  EXPECT_EQ(cohort.Size(Clock(9)), 2u);
  EXPECT_EQ(cohort.Size(Clock(10)), 3u);
}

TEST(CohortTest, ChangesAreReportedOnce) {
  Cohort cohort;
  cohort.Adopt({Entry(0, 1, 0), Entry(1, 2, 0)});
  auto changes = cohort.Adopt({Entry(0, 1, 0, WorkerState::kFencing), Entry(1, 2, 0)});
  EXPECT_EQ(changes.refused, std::vector{Incarnation(1)});
  EXPECT_TRUE(changes.ended.empty());
  changes = cohort.Adopt({Entry(0, 1, 0, WorkerState::kEnded, 3), Entry(1, 2, 0)});
  EXPECT_TRUE(changes.refused.empty());
  ASSERT_EQ(changes.ended.size(), 1u);
  EXPECT_EQ(changes.ended[0].second, Clock(3));
  changes = cohort.Adopt({Entry(1, 2, 0, WorkerState::kEnded, 5)});  // a view between them was missed
  EXPECT_EQ(changes.refused, std::vector{Incarnation(2)});
  EXPECT_EQ(changes.ended.size(), 1u);
  EXPECT_EQ(changes.dropped, std::vector{Incarnation(1)});
  EXPECT_TRUE(cohort.Fenced().empty());
}

}  // namespace
}  // namespace tarn::server

// Shows Cohort alone: the minimum clock never decreases, and the cohort of a clock follows from the view.
#include "server/clock/cohort.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/limits.h"

namespace tarn::server {
namespace {

WorkerEntry Entry(std::uint32_t rank, std::uint64_t incarnation, std::uint64_t join,
                  WorkerState state = WorkerState::kLive, std::uint64_t end = 0) {
  return {WorkerRank(rank), Incarnation(incarnation), state, Clock(join), Clock(end)};
}

TEST(CohortTest, TheMinimumClockIsTheSlowestWorkersAndNeverDecreases) {
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

// Four workers, at clocks 2, 5, 5 and 9.
Cohort FourWorkers() {
  Cohort cohort;
  cohort.Adopt({Entry(0, 1, 0), Entry(1, 2, 0), Entry(2, 3, 0), Entry(3, 4, 0)});
  for (const auto& [worker, clock] : {std::pair(1, 2), {2, 5}, {3, 5}, {4, 9}})
    cohort.Tick(Incarnation(std::uint64_t(worker)), tarn::Tick{Clock(std::uint64_t(clock)), {}, {}});
  return cohort;
}

TEST(CohortTest, BackupWorkersAreNotWaitedFor) {
  const Cohort cohort = FourWorkers();
  EXPECT_EQ(cohort.Open(0), cohort.minimum());
  EXPECT_EQ(cohort.Open(1), Clock(5));
  EXPECT_EQ(cohort.Open(2), Clock(5));
  EXPECT_EQ(cohort.Open(3), Clock(9));
  EXPECT_EQ(cohort.Open(7), Clock(9)) << "the fastest is always waited for";
  EXPECT_EQ(cohort.Finished(Clock(4)), 3u);
  EXPECT_EQ(cohort.Finished(Clock(5)), 1u);
  EXPECT_TRUE(cohort.HasFinished(Incarnation(2), Clock(4)));
  EXPECT_FALSE(cohort.HasFinished(Incarnation(2), Clock(5)));
  EXPECT_FALSE(cohort.HasFinished(Incarnation(99), Clock(0)));
}

TEST(CohortTest, ACutHoldsTheOpenClockUntilEveryWorkerHasReachedIt) {
  Cohort cohort = FourWorkers();
  cohort.HoldAt(Clock(7));
  EXPECT_EQ(cohort.Open(3), Clock(7));
  EXPECT_EQ(cohort.Open(1), Clock(5));
  for (std::uint64_t worker = 1; worker <= 4; ++worker) cohort.Tick(Incarnation(worker), tarn::Tick{Clock(8), {}, {}});
  EXPECT_EQ(cohort.Open(1), Clock(8)) << "it does not fall below the minimum";
  cohort.HoldAt(std::nullopt);
  EXPECT_EQ(cohort.Open(3), Clock(9));
}

// When a worker ends, both its tick and its place in the count of workers disappear.
TEST(CohortTest, TheOpenClockDoesNotDecreaseWhenAWorkerEnds) {
  for (std::uint64_t dead = 1; dead <= 4; ++dead)
    for (std::uint32_t backups = 0; backups <= 4; ++backups) {
      Cohort cohort = FourWorkers();
      const Clock before = cohort.Open(backups);
      const std::uint64_t end = cohort.members().at(Incarnation(dead)).tick.value;
      std::vector<WorkerEntry> entries;
      for (std::uint64_t worker = 1; worker <= 4; ++worker)
        entries.push_back(Entry(std::uint32_t(worker - 1), worker, 0,
                                worker == dead ? WorkerState::kEnded : WorkerState::kLive, worker == dead ? end : 0));
      cohort.Adopt(entries);
      EXPECT_GE(cohort.Open(backups), before) << "worker " << dead << ", " << backups << " backups";
    }
}

TEST(CohortTest, AnOlderTickDoesNotChangeThePosition) {
  Cohort cohort;
  cohort.Adopt({Entry(0, 1, 0)});
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(4), {LeaseId(2), 40}, {}});
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(3), {LeaseId(1), 30}, {}});
  EXPECT_EQ(cohort.members().at(Incarnation(1)).position, (DataPosition{LeaseId(2), 40}));
}

TEST(CohortTest, SizeIsTheNumberOfWorkersThatTheClockWaitsFor) {
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
  changes = cohort.Adopt({Entry(1, 2, 0, WorkerState::kEnded, 5)});  // a view in between was lost
  EXPECT_EQ(changes.refused, std::vector{Incarnation(2)});
  EXPECT_EQ(changes.ended.size(), 1u);
  EXPECT_EQ(changes.dropped, std::vector{Incarnation(1)});
  EXPECT_TRUE(cohort.Fenced().empty());
}

// Rule G4: a worker can be reset to any clock that the minimum clock has not passed.
TEST(CohortTest, KeepsTheTicksSinceTheMinimumClock) {
  Cohort cohort;
  cohort.Adopt({Entry(0, 1, 0), Entry(1, 2, 0)});
  auto clocks = [&] {
    std::vector<std::uint64_t> found;
    for (const TickPoint& point : cohort.members().at(Incarnation(1)).earlier) found.push_back(point.clock.value);
    return found;
  };
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(2), {LeaseId(1), 20}, {}});
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(5), {LeaseId(1), 50}, {{Clock(3), {LeaseId(1), 30}}}});
  EXPECT_EQ(clocks(), (std::vector<std::uint64_t>{0, 2, 3}));
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(6), {LeaseId(1), 60}, {{Clock(3), {}}, {Clock(5), {}}}});
  EXPECT_EQ(clocks(), (std::vector<std::uint64_t>{0, 2, 3, 5})) << "each once";
  EXPECT_EQ(cohort.members().at(Incarnation(1)).earlier[2].position, (DataPosition{LeaseId(1), 30}));
  cohort.Tick(Incarnation(2), tarn::Tick{Clock(4), {}, {}});
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(7), {LeaseId(1), 70}, {}});
  EXPECT_EQ(clocks(), (std::vector<std::uint64_t>{3, 5, 6})) << "3 is the last before the minimum clock of 4";
  cohort.Adopt({Entry(0, 1, 0, WorkerState::kFencing), Entry(1, 2, 0)});
  EXPECT_EQ(cohort.FencedTicks().size(), 3u);
}

TEST(CohortTest, KeepsTheNewestTicksUpToTheLimit) {
  Cohort cohort;
  cohort.Adopt({Entry(0, 1, 0), Entry(1, 2, 0)});
  for (std::uint64_t clock = 1; clock <= limits::kTicksKeptMax; ++clock)
    cohort.Tick(Incarnation(1), tarn::Tick{Clock(clock), {}, {}});
  EXPECT_EQ(cohort.members().at(Incarnation(1)).earlier.size(), limits::kTicksKeptMax);
  EXPECT_EQ(cohort.members().at(Incarnation(1)).earlier.front().clock, Clock(0));
  cohort.Tick(Incarnation(1), tarn::Tick{Clock(limits::kTicksKeptMax + 1), {}, {}});
  EXPECT_EQ(cohort.members().at(Incarnation(1)).earlier.size(), limits::kTicksKeptMax);
  EXPECT_EQ(cohort.members().at(Incarnation(1)).earlier.front().clock, Clock(1));
}

}  // namespace
}  // namespace tarn::server

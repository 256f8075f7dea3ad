// Shows Fencing alone: the end clock of a worker follows from the reports of all shards (rules M3, G4).
#include "scheduler/membership/fencing.h"

#include <gtest/gtest.h>

namespace tarn::scheduler {
namespace {

constexpr Incarnation kA{1}, kB{2};

struct Tick {
  Incarnation worker;
  std::uint64_t clock = 0, pushed = 0;
};

// A heartbeat with these ticks; the lease of each is its clock. `with_earlier`: with the ticks of the two clocks
// before.
Heartbeat Reports(const std::vector<Tick>& ticks, bool with_earlier = false) {
  Heartbeat beat;
  for (const Tick& tick : ticks) {
    if (with_earlier)
      for (std::uint64_t clock = tick.clock - 2; clock < tick.clock; ++clock)
        beat.fenced_ticks.push_back({tick.worker, Clock(clock), {LeaseId(clock), 0}});
    beat.fenced.push_back({tick.worker, Clock(tick.clock), {LeaseId(tick.clock), 0}, Clock(tick.pushed)});
  }
  return beat;
}

TEST(Fencing, AWorkerEndsAtItsHighestTickOnceAllShardsHaveReported) {
  Fencing fencing(2, false);
  fencing.Begin(kA, Clock(3));
  EXPECT_TRUE(fencing.any());
  fencing.OnHeartbeat(ShardId(0), Reports({{kA, 6, 9}, {kB, 50, 50}}));  // kB is not being fenced
  EXPECT_TRUE(fencing.TakeEnds(true).empty());
  fencing.OnHeartbeat(ShardId(0), Reports({{kA, 8}}));  // its first report counts
  EXPECT_TRUE(fencing.TakeEnds(true).empty());
  fencing.OnHeartbeat(ShardId(1), Reports({{kA, 7, 8}}));
  const auto ends = fencing.TakeEnds(true);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].worker, kA);
  EXPECT_EQ(ends[0].clock, Clock(7));
  EXPECT_EQ(ends[0].position.lease, LeaseId(7));
  EXPECT_EQ(ends[0].pushed, Clock(9));
  EXPECT_FALSE(ends[0].taken_back);
  EXPECT_FALSE(fencing.any());
}

TEST(Fencing, AWorkerWithoutATickEndsWhereItJoined) {
  Fencing fencing(1, false);
  fencing.Begin(kA, Clock(3));
  fencing.OnHeartbeat(ShardId(0), Reports({{kA, 0}}));
  EXPECT_EQ(fencing.TakeEnds(true).at(0).clock, Clock(3));
}

TEST(Fencing, AfterARestartAllWaitForTheLastWorker) {
  Fencing fencing(1, false);
  fencing.BeginRestart();
  fencing.Begin(kA, Clock(0));
  fencing.Begin(kB, Clock(0));
  fencing.OnHeartbeat(ShardId(0), Reports({{kA, 6}}));
  EXPECT_TRUE(fencing.TakeEnds(true).empty());
  fencing.OnHeartbeat(ShardId(0), Reports({{kB, 4}}));
  EXPECT_TRUE(fencing.TakeEnds(false).empty());  // the fleet is not complete
  const auto ends = fencing.TakeEnds(true);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].clock, Clock(6));
  EXPECT_EQ(ends[1].clock, Clock(4));
  EXPECT_FALSE(fencing.restarting());
}

TEST(Fencing, G4AllEndAtTheLowestClockWithTheirPositionsThere) {
  Fencing fencing(2, true);
  fencing.BeginRestart();
  fencing.Begin(kA, Clock(0));
  fencing.Begin(kB, Clock(0));
  fencing.OnHeartbeat(ShardId(0), Reports({{kA, 6, 7}, {kB, 4, 5}}, true));
  fencing.OnHeartbeat(ShardId(1), Reports({{kA, 5, 7}, {kB, 5, 5}}, true));
  const auto ends = fencing.TakeEnds(true);
  ASSERT_EQ(ends.size(), 2u);
  for (const Fencing::End& end : ends) {
    EXPECT_EQ(end.clock, Clock(5));
    EXPECT_EQ(end.position.lease, LeaseId(5));
    EXPECT_EQ(end.pushed, Clock(0));
    EXPECT_TRUE(end.taken_back);
  }
  EXPECT_FALSE(fencing.any());
}

TEST(Fencing, ARestartWithoutWorkersEndsOnceTheFleetIsComplete) {
  Fencing fencing(1, true);
  fencing.BeginRestart();
  fencing.TakeEnds(false);
  EXPECT_TRUE(fencing.restarting());
  EXPECT_TRUE(fencing.TakeEnds(true).empty());
  EXPECT_FALSE(fencing.restarting());
}

}  // namespace
}  // namespace tarn::scheduler

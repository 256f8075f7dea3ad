// Shows FleetWatch alone: when a fleet counts as deserted, and how often its waits are written to the log.
#include "scheduler/membership/fleet_watch.h"

#include <gtest/gtest.h>

#include "core/log.h"
#include "tests/unit/scheduler/membership/formed_fleet.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 1'000'000;

class FleetWatchTest : public testing::Test {
 protected:
  static FleetSection Section() {
    FleetSection section;
    section.lease_seconds = 1;
    section.workers = 1;
    return section;
  }
  // Advances time in small steps, as if the scheduler ran all the time.
  void Pass(TimeUs* now, TimeUs us) {
    for (const TimeUs end = *now + us; *now < end;) {
      *now += kLeaseUs / 4;
      watch_.Note(*now);
    }
  }

  FormedFleet fleet_{1};
  Notes notes_;
  FleetWatch watch_{Section(), &fleet_.membership, &notes_};
};

TEST_F(FleetWatchTest, AFleetIsDesertedSomeTimeAfterItsLastWorkerHasDied) {
  constexpr TimeUs kLong = FleetWatch::kWorkerlessLeasesMax * kLeaseUs;
  TimeUs now = 0;
  watch_.Start(now);
  Pass(&now, 2 * kLong);
  EXPECT_FALSE(watch_.Deserted(now, false));  // a worker is alive
  fleet_.membership.Fence(fleet_.Newest());
  watch_.OnWorkerEnded(true);
  Pass(&now, 2 * kLong);
  EXPECT_FALSE(watch_.Deserted(now, false));  // it left
  watch_.OnWorkerEnded(false);
  EXPECT_FALSE(watch_.Deserted(now, true));  // the run ends anyway
  Pass(&now, kLong);
  EXPECT_FALSE(watch_.Deserted(now, false));
  Pass(&now, kLeaseUs);
  EXPECT_TRUE(watch_.Deserted(now, false));
}

TEST_F(FleetWatchTest, TimeInWhichTheSchedulerDidNotRunDoesNotCount) {
  TimeUs now = 0;
  watch_.Start(now);
  fleet_.membership.Fence(fleet_.Newest());
  watch_.OnWorkerEnded(false);
  EXPECT_FALSE(watch_.Deserted(now, false));
  now += 100 * kLeaseUs;
  watch_.Note(now);
  EXPECT_EQ(watch_.listening_since(), now);
  EXPECT_FALSE(watch_.Deserted(now, false));
}

TEST_F(FleetWatchTest, WaitsAreWrittenOncePerPeriod) {
  TimeUs now = 0;
  watch_.Start(now);
  for (; now < kWaitNotePeriodUs; Pass(&now, kLeaseUs)) watch_.WarnOfWaits(now, {});
  EXPECT_TRUE(notes_.Take().empty());
  watch_.WarnOfWaits(now, {});
  watch_.WarnOfWaits(now + kWaitNotePeriodUs - 1, {});
  EXPECT_EQ(notes_.Take().size(), 1u);
  watch_.WarnOfWaits(now + kWaitNotePeriodUs, {});
  EXPECT_EQ(notes_.Take().size(), 1u);
}

TEST_F(FleetWatchTest, AWorkerThatHoldsACheckpointIsNamed) {
  TimeUs now = 0;
  watch_.Start(now);
  Pass(&now, kWaitNotePeriodUs);
  fleet_.membership.RecordShardContact({Role::kShard, 0, Incarnation(1)}, std::nullopt, now);
  fleet_.membership.RecordWorkerContact({Role::kWorker, 0, fleet_.Newest()}, Peer(9), now);
  EXPECT_EQ(watch_.WaitText(now, {}), "");
  EXPECT_TRUE(watch_.WaitText(now, {.clock = Clock(7), .programs = {}}).contains("and a checkpoint waits for clock 7"));
  const std::string text = watch_.WaitText(now, {.clock = {}, .programs = {fleet_.Newest()}});
  EXPECT_TRUE(text.contains("and a checkpoint waits for the state of its program")) << text;
}

}  // namespace
}  // namespace tarn::scheduler

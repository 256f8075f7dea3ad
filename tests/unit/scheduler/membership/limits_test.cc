// Shows that the scheduler's memory of ended workers is bounded, and what happens at each limit.
#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/formed_fleet.h"

namespace tarn::scheduler {
namespace {

TEST(Limits, TheOldestStartsAreForgottenFirst) {
  Membership::Options options;
  options.nonces_kept = 4;
  FormedFleet fleet(1, 1, options);
  // Each process joins while the previous one still waits to be welcomed, and replaces it. Nonces decrease, so that the
  // oldest is not the smallest.
  std::vector<std::uint64_t> nonces;
  for (std::uint64_t with = 90; with > 87; --with) {
    fleet.JoinWith(0, with);
    nonces.push_back(with);
  }
  EXPECT_EQ(fleet.membership.workers().starts_known(), 4u);  // at the limit: all are known
  fleet.JoinWith(0, nonces[0]);
  EXPECT_NE(fleet.Last<Shutdown>(), nullptr);
  fleet.membership.TakeVerdicts();
  fleet.JoinWith(0, 87);  // one past it: the oldest ended start is forgotten, the first of these three
  EXPECT_EQ(fleet.membership.workers().starts_known(), 4u);
  fleet.JoinWith(0, nonces[1]);
  EXPECT_NE(fleet.Last<Shutdown>(), nullptr);
  fleet.JoinWith(0, nonces[0]);
  EXPECT_EQ(fleet.Last<Shutdown>(), nullptr);
}

TEST(Limits, JoinersWaitWhileTheViewIsFull) {
  Membership::Options options;
  options.worker_entries_max = 3;
  FormedFleet fleet(2, 1, options);
  auto rejoin = [&] {  // worker 0 dies and is replaced
    fleet.JoinAs(0);
    fleet.Confirm();
    fleet.membership.TakeVerdicts();
    fleet.Confirm();
    if (!fleet.membership.JoinersReady(0)) return false;
    fleet.membership.AdmitJoiners(Clock(50));
    fleet.Confirm();
    return true;
  };
  EXPECT_TRUE(rejoin());  // at the limit: two live, one with an end clock that not all shards have passed
  fleet.membership.Fence(fleet.Newest());
  fleet.Confirm();
  fleet.membership.TakeVerdicts();  // ended at clock 50
  fleet.Confirm();
  EXPECT_EQ(fleet.membership.view().workers.size(), 2u);  // all shards have passed clock 0: the first entry is removed
  EXPECT_TRUE(rejoin());
  fleet.membership.Fence(fleet.Newest());
  fleet.Confirm();
  fleet.membership.TakeVerdicts();
  fleet.Confirm();
  EXPECT_EQ(fleet.membership.view().workers.size(), 3u);
  EXPECT_FALSE(rejoin());  // one past it
  fleet.Confirm(Clock(50));
  EXPECT_TRUE(fleet.membership.JoinersReady(0));
  EXPECT_EQ(fleet.membership.AdmitJoiners(Clock(60)).size(), 1u);
  EXPECT_LE(fleet.membership.view().workers.size(), 3u);
}

TEST(Limits, EndedWorkersAreRememberedUpToALimit) {
  FormedFleet fleet(1);
  const Incarnation first = fleet.Newest();
  for (std::size_t i = 0; i < kEndedWorkersKept; ++i) {
    fleet.membership.OnLeave(fleet.Newest(), Leave{});
    if (i + 1 == kEndedWorkersKept) break;
    fleet.JoinAs(0);
    fleet.Confirm();
    fleet.membership.AdmitJoiners(Clock(0));
    fleet.Confirm();
  }
  EXPECT_TRUE(fleet.membership.workers().Left(first));  // at the limit
  for (int i = 0; i < 2; ++i) {
    fleet.JoinAs(0);
    fleet.Confirm();
    fleet.membership.AdmitJoiners(Clock(0));
    fleet.Confirm();
    fleet.membership.OnLeave(fleet.Newest(), Leave{});
  }
  fleet.JoinAs(0);
  fleet.membership.AdmitJoiners(Clock(0));
  EXPECT_FALSE(fleet.membership.workers().Left(first));  // beyond
}

}  // namespace
}  // namespace tarn::scheduler

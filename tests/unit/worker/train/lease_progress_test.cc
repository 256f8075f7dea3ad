// Shows when a worker requests leases, reports them, jumps and leaves.
#include "worker/train/lease_progress.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

using Next = LeaseProgress::Next;
constexpr std::uint64_t kRows[3] = {100, 0, 0};

FinishedLease Finished(std::uint64_t lease, std::optional<Clock> tick) {
  return {.done = {LeaseId(lease), {}}, .tick = tick};
}
LeaseReply Granted(std::uint64_t lease) {
  LeaseReply reply;
  reply.grants.push_back({.lease = LeaseId(lease)});
  return reply;
}

TEST(LeaseProgress, OnlyOneRequestIsPendingAtATime) {
  LeaseProgress leases;
  EXPECT_EQ(leases.TakeNext(0, true), Next::kRequest);
  EXPECT_EQ(leases.MakeRequest(kRows).want, LeaseProgress::kLeasesAhead);
  EXPECT_EQ(leases.TakeNext(0, true), Next::kNothing);
  leases.OnReply(Granted(1));
  EXPECT_EQ(leases.TakeNext(1, false), Next::kRequest) << "one in work, one ahead";
  leases.OnReply(Granted(2));
  EXPECT_EQ(leases.TakeNext(LeaseProgress::kLeasesAhead, false), Next::kNothing);
}

TEST(LeaseProgress, ATrainedLeaseIsReportedOnceItsTickIsAcknowledged) {
  LeaseProgress leases;
  leases.OnFinished(Finished(1, Clock(7)));
  leases.OnTickAcknowledged(Clock(6));
  EXPECT_TRUE(leases.MakeRequest(kRows).done.empty());
  EXPECT_EQ(leases.TakeNext(0, true), Next::kNothing) << "nothing is asked for while the last tick is under way";
  leases.OnTickAcknowledged(Clock(7));
  EXPECT_EQ(leases.TakeNext(0, true), Next::kRequest);
  const LeaseRequest request = leases.MakeRequest(kRows);
  ASSERT_EQ(request.done.size(), 1u);
  EXPECT_EQ(request.done[0].lease, LeaseId(1));
  EXPECT_TRUE(leases.MakeRequest(kRows).done.empty()) << "reported once";
}

TEST(LeaseProgress, AnEvaluatedLeaseIsReportedAtOnce) {
  LeaseProgress leases;
  leases.OnFinished(Finished(3, std::nullopt));
  EXPECT_EQ(leases.MakeRequest(kRows).done.size(), 1u);
}

TEST(LeaseProgress, AWorkerWithoutWorkJumpsOnceItIsDrained) {
  LeaseProgress leases;
  LeaseReply nothing;
  nothing.jump_to = Clock(9);
  leases.OnReply(nothing);
  EXPECT_EQ(leases.TakeJump(false), std::nullopt);
  EXPECT_EQ(leases.TakeJump(true), Clock(9));
  EXPECT_EQ(leases.TakeJump(true), std::nullopt);
}

TEST(LeaseProgress, AWorkerLeavesWhenAllLeasesAreReported) {
  LeaseProgress leases;
  leases.OnFinished(Finished(1, Clock(2)));
  LeaseReply finished;
  finished.finished = true;
  leases.OnReply(finished);
  EXPECT_EQ(leases.TakeNext(0, false), Next::kNothing);
  EXPECT_EQ(leases.TakeNext(0, true), Next::kNothing) << "a tick is not acknowledged";
  leases.OnTickAcknowledged(Clock(2));
  EXPECT_EQ(leases.TakeNext(0, true), Next::kLeave);
  EXPECT_EQ(leases.TakeNext(0, true), Next::kNothing);
}

}  // namespace
}  // namespace tarn::worker

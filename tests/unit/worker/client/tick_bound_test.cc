// Shows up to which clock an open proposal allows ticks and pushes, and when a worker is drained.
#include "worker/client/tick_bound.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

Proposal Open(std::uint64_t id, bool drain) {
  Proposal proposal;
  proposal.id = id;
  proposal.open = true;
  proposal.drain = drain;
  return proposal;
}

TEST(TickBoundTest, AProposalBoundsTicksAndPushesUntilItIsClosed) {
  TickBound bound;
  EXPECT_EQ(bound.limit(Clock(5)), Clock(UINT64_MAX));
  EXPECT_FALSE(bound.Adopt(Open(3, false), Clock(5)));
  EXPECT_TRUE(bound.open());
  EXPECT_EQ(bound.id(), 3u);
  EXPECT_EQ(bound.limit(Clock(9)), Clock(5) + kProposalSlack);
  EXPECT_TRUE(bound.MayPush(Clock(5) + kProposalSlack, Clock(9)));
  EXPECT_FALSE(bound.MayPush(Clock(6) + kProposalSlack, Clock(9)));
  EXPECT_FALSE(bound.Adopt({}, Clock(9)));
  EXPECT_EQ(bound.limit(Clock(9)), Clock(UINT64_MAX));
  EXPECT_EQ(bound.id(), 3u);
}

TEST(TickBoundTest, ADrainEndsAtTheGivenClock) {
  TickBound bound;
  EXPECT_TRUE(bound.Adopt(Open(4, true), Clock(5)));
  EXPECT_EQ(bound.limit(Clock(5)), Clock(5));
  EXPECT_FALSE(bound.MayPush(Clock(5), Clock(5)));
  EXPECT_FALSE(bound.NoteDrained(Clock(4)));
  EXPECT_TRUE(bound.NoteDrained(Clock(5)));
  EXPECT_EQ(bound.drained(), 4u);
  EXPECT_FALSE(bound.NoteDrained(Clock(5))) << "once";
}

// Otherwise a checkpoint would contain the push but not its data position.
TEST(TickBoundTest, AClockWithAPushIsFinishedFirst) {
  TickBound bound;
  bound.OnPush(Clock(5));
  EXPECT_TRUE(bound.Adopt(Open(4, true), Clock(5)));
  EXPECT_FALSE(bound.NoteDrained(Clock(5)));
  EXPECT_TRUE(bound.MayPush(Clock(5), Clock(5)));
  bound.OnAsk(Clock(6));
  EXPECT_EQ(bound.limit(Clock(6)), Clock(6));
  EXPECT_FALSE(bound.MayPush(Clock(6), Clock(6)));
  EXPECT_TRUE(bound.NoteDrained(Clock(6)));
}

}  // namespace
}  // namespace tarn::worker

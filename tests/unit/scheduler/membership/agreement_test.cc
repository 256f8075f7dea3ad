// Shows Agreement alone: when a clock is agreed on, for joiners and for cuts, and when the proposal is closed.
#include "scheduler/membership/agreement.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/formed_fleet.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 1'000'000;

class AgreementTest : public testing::Test {
 protected:
  Membership& membership() { return fleet_.membership; }
  const Proposal& proposal() { return membership().view().proposal; }

  FormedFleet fleet_{2};
  Notes notes_;
  Agreement agreement_{&fleet_.membership, &notes_, kLeaseUs};
  const Incarnation a_{2}, b_{3};
};

TEST_F(AgreementTest, TheClockIsOneThatNoWorkerHasPassed) {
  agreement_.Open(Agreement::Purpose::kJoin, 0);
  EXPECT_TRUE(proposal().open);
  EXPECT_FALSE(proposal().drain);
  fleet_.Report(a_, Clock(5));
  EXPECT_EQ(agreement_.FreeClock(9 * kLeaseUs), std::nullopt);  // there is no deadline
  fleet_.Report(b_, Clock(3));
  EXPECT_EQ(agreement_.FreeClock(0), Clock(5) + kProposalSlack + 1);
  agreement_.AwaitConfirmation();
  EXPECT_FALSE(agreement_.reporting());
  EXPECT_FALSE(agreement_.CloseIfConfirmed());
  fleet_.Confirm();
  EXPECT_TRUE(agreement_.CloseIfConfirmed());
  EXPECT_FALSE(agreement_.open());
  EXPECT_FALSE(proposal().open);
  EXPECT_FALSE(agreement_.CloseIfConfirmed());
}

TEST_F(AgreementTest, AgreementWaitsForAWorkerThatIsBeingFenced) {
  agreement_.Open(Agreement::Purpose::kCut, 0);
  fleet_.Report(a_, Clock(5));
  membership().Fence(b_);
  EXPECT_EQ(agreement_.FreeClock(0), std::nullopt);
  fleet_.Confirm();
  membership().TakeVerdicts();
  EXPECT_NE(agreement_.FreeClock(0), std::nullopt);
}

TEST_F(AgreementTest, ADrainedCutWaitsAtMostALeaseAndNamesLateWorkers) {
  agreement_.Open(Agreement::Purpose::kDrainedCut, 0);
  EXPECT_TRUE(proposal().drain);
  Heartbeat beat;
  beat.drained = proposal().id;
  membership().OnHeartbeat(a_, beat, 0, fleet_.mail);
  EXPECT_EQ(agreement_.FreeClock(kLeaseUs - 1), std::nullopt);
  EXPECT_NE(agreement_.FreeClock(kLeaseUs), std::nullopt);
  const auto notes = notes_.Take();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].warning && notes[0].text.starts_with("worker 1 has not finished its batch for 1 s"));
  membership().OnHeartbeat(b_, beat, 0, fleet_.mail);
  EXPECT_NE(agreement_.FreeClock(0), std::nullopt);
  EXPECT_TRUE(notes_.Take().empty());
}

}  // namespace
}  // namespace tarn::scheduler

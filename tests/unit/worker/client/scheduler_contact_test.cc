// Shows that a silence of two leases is an error once the worker has joined, and that a pause of the process counts as
// no silence.
#include "worker/client/scheduler_contact.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

constexpr TimeUs kLease = 5'000'000;

TEST(SchedulerContact, TwoLeasesOfSilenceAreAnError) {
  SchedulerContact contact;
  contact.Begin(1'000);
  contact.Note(60'001'000);
  EXPECT_TRUE(contact.Check(60'001'000, "tcp://s:1")) << "it has not joined";
  EXPECT_EQ(contact.last_message(), 1'000);

  TimeUs now = 60'001'000;
  contact.OnMessage(now);
  contact.OnWelcome(kLease);
  const auto run = [&](TimeUs us) { contact.Note(now += us); };
  run(kLease - 1);
  EXPECT_FALSE(contact.Paused(now));
  run(1);
  EXPECT_TRUE(contact.Paused(now));
  run(kLease - 1);
  EXPECT_TRUE(contact.Check(now, "tcp://s:1"));
  run(1);
  EXPECT_EQ(contact.Silence(now), 2 * kLease);
  const Status lost = contact.Check(now, "tcp://s:1");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(lost.error().message,
            "the scheduler at tcp://s:1 has been silent for 10.0 seconds (a lease is 5.0): it is dead or cannot be "
            "reached");
  contact.OnMessage(now);
  EXPECT_TRUE(contact.Check(now, "tcp://s:1"));
}

TEST(SchedulerContact, APauseOfTheProcessIsNoSilence) {
  SchedulerContact contact;
  contact.Begin(0);
  contact.OnWelcome(kLease);
  const TimeUs awake = 3'600'000'000;
  EXPECT_EQ(contact.Silence(awake), 0) << "before its first step";
  contact.Note(awake);
  EXPECT_EQ(contact.Silence(awake + kLease), kLease);
}

}  // namespace
}  // namespace tarn::worker

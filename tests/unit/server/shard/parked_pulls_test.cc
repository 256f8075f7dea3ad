// Shows ParkedPulls alone: order, replacement of repeated pulls, and bounds.
#include "server/shard/parked_pulls.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

ParkedPull Parked(std::uint64_t incarnation, std::uint64_t request, std::uint64_t clock, std::size_t bytes = 8) {
  ParkedPull parked{.from = Peer(1), .incarnation = Incarnation(incarnation), .wanted_clock = Clock(clock)};
  parked.pull.request = RequestId(request);
  parked.pull.tables = {PullPart{.keys = {.frame = Buffer::Allocate(bytes)}}};
  return parked;
}

constexpr auto kAll = [](const ParkedPull&) { return true; };

TEST(ParkedPullsTest, AreTakenInOrderOfClockIncarnationAndRequest) {
  ParkedPulls parked(100, 1 << 20);
  EXPECT_TRUE(parked.Park(Parked(2, 1, 5)));
  EXPECT_TRUE(parked.Park(Parked(1, 2, 5)));
  EXPECT_TRUE(parked.Park(Parked(1, 1, 5)));
  EXPECT_TRUE(parked.Park(Parked(3, 9, 4)));
  EXPECT_TRUE(parked.Park(Parked(1, 7, 6)));
  std::vector<std::uint64_t> requests;
  for (const ParkedPull& pull : parked.TakeOpened(Clock(5), kAll)) requests.push_back(pull.pull.request.value);
  EXPECT_EQ(requests, (std::vector<std::uint64_t>{9, 1, 2, 1}));
  EXPECT_EQ(parked.size(), 1u);
}

TEST(ParkedPullsTest, PullsThatMayNotBeAnsweredStayParked) {
  ParkedPulls parked(100, 1 << 20);
  for (std::uint64_t request : {1, 2, 3}) EXPECT_TRUE(parked.Park(Parked(1, request, 5)));
  const auto opened =
      parked.TakeOpened(Clock(5), [](const ParkedPull& one) { return one.pull.request != RequestId(2); });
  EXPECT_EQ(opened.size(), 2u);
  EXPECT_EQ(parked.TakeOpened(Clock(5), kAll).size(), 1u);
}

TEST(ParkedPullsTest, HoldBytesUpToTheLimit) {
  ParkedPulls parked(100, 10'000);
  EXPECT_TRUE(parked.Park(Parked(1, 1, 5, 8000)));
  EXPECT_FALSE(parked.Park(Parked(1, 2, 5, 8000)));
  EXPECT_TRUE(parked.Park(Parked(1, 1, 5, 8001)));  // replaces
  parked.Drop(Incarnation(1));
  EXPECT_EQ(parked.bytes(), 0u);
  EXPECT_TRUE(parked.TakeOpened(Clock(9), kAll).empty());
}

// A pull larger than the limit must be parked if no other is; otherwise the client would repeat it forever.
TEST(ParkedPullsTest, AnEmptyQueueTakesAPullOfAnySize) {
  ParkedPulls parked(100, 10'000);
  EXPECT_TRUE(parked.Park(Parked(1, 1, 5, 20'000)));
  EXPECT_FALSE(parked.Park(Parked(1, 2, 5, 20'000)));
  EXPECT_FALSE(parked.Park(Parked(1, 3, 5)));
  EXPECT_EQ(parked.TakeOpened(Clock(5), kAll).size(), 1u);
  EXPECT_TRUE(parked.Park(Parked(1, 2, 5, 20'000)));
}

TEST(ParkedPullsTest, PullsThatWaitForPushesAreTakenByWorker) {
  ParkedPulls parked(100, 10'000);
  ParkedPull open = Parked(1, 1, 5);
  open.clock_open = true;
  EXPECT_TRUE(parked.Park(open));
  EXPECT_TRUE(parked.Park(Parked(1, 2, 5)));
  EXPECT_TRUE(parked.TakeWaitingForPush(Incarnation(2)).empty());
  EXPECT_EQ(parked.TakeWaitingForPush(Incarnation(1)).size(), 1u);
  EXPECT_EQ(parked.size(), 1u);
}

}  // namespace
}  // namespace tarn::server

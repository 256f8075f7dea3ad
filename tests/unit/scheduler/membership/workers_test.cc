// Shows Workers alone: ranks, states, the effect of heartbeats, and which workers must confirm the end of the run.
#include "scheduler/membership/workers.h"

#include <gtest/gtest.h>

namespace tarn::scheduler {
namespace {

constexpr TimeUs kSecondUs = 1'000'000;

class WorkersTest : public testing::Test {
 protected:
  Incarnation Add(std::uint32_t rank, TimeUs now = 0) {
    const Incarnation id(++newest_);
    workers_.Add(WorkerRank(rank), id, 100 + newest_, Peer(newest_), now);
    return id;
  }
  Incarnation AddLive(std::uint32_t rank) {
    const Incarnation id = Add(rank);
    workers_.MakeLive(id, Clock(4), ViewVersion(1));
    return id;
  }

  Workers workers_{{.ranks = 2, .lease_us = 5 * kSecondUs, .nonces_kept = 8, .start_clock = Clock(3)}};
  std::uint64_t newest_ = 0;
};

TEST_F(WorkersTest, AJoinGetsTheLowestRankThatIsFree) {
  Join join;
  join.rank = kAnyRank;
  EXPECT_EQ(workers_.RankFor(join), WorkerRank(0));
  const Incarnation first = AddLive(0);
  EXPECT_EQ(workers_.RankFor(join), WorkerRank(1));
  Add(1);
  EXPECT_EQ(workers_.RankFor(join), std::nullopt);
  workers_.Fence(first);
  EXPECT_EQ(workers_.RankFor(join), WorkerRank(0));
  join.rank = 7;
  EXPECT_EQ(workers_.RankFor(join), WorkerRank(7));  // the requested rank; the caller checks whether the job has it
}

TEST_F(WorkersTest, OnlyHeartbeatsOfALiveIncarnationCount) {
  const Incarnation id = Add(1);
  const Sender sender{Role::kWorker, 1, id};
  EXPECT_EQ(workers_.RecordContact(sender, Peer(9), 1), nullptr);
  workers_.MakeLive(id, Clock(4), ViewVersion(1));
  ASSERT_NE(workers_.RecordContact(sender, Peer(9), 2), nullptr);
  EXPECT_EQ(workers_.at(id).peer, Peer(9));
  EXPECT_EQ(workers_.RecordContact({Role::kWorker, 0, id}, Peer(9), 2), nullptr);
  workers_.Fence(id);
  EXPECT_EQ(workers_.RecordContact(sender, Peer(9), 3), nullptr);
}

TEST_F(WorkersTest, OlderHeartbeatsChangeNothing) {
  const Incarnation id = AddLive(0);
  View view;
  view.version = ViewVersion(3);
  view.proposal.id = 2;
  Heartbeat beat;
  beat.view = ViewVersion(9);
  beat.proposal = beat.drained = 5;
  beat.clock = Clock(8);
  beat.acked_clock = Clock(6);
  beat.position = {LeaseId(2), 30};
  workers_.OnHeartbeat(id, beat, view);
  beat.clock = beat.acked_clock = Clock(5);
  beat.position = {LeaseId(1), 10};
  workers_.OnHeartbeat(id, beat, view);
  const WorkerNode& worker = workers_.at(id);
  EXPECT_EQ(worker.confirmed, ViewVersion(3));
  EXPECT_EQ(worker.proposal, 2u);
  EXPECT_EQ(worker.drained, 2u);
  EXPECT_EQ(worker.clock, Clock(8));
  EXPECT_EQ(worker.acked_clock, Clock(6));
  EXPECT_EQ(workers_.LivePositions().at(id).lease, LeaseId(2));
  EXPECT_EQ(workers_.MaxClock(), Clock(8));
}

TEST_F(WorkersTest, TheLargestEndClockNeverDecreases) {
  EXPECT_EQ(workers_.largest_end(), Clock(3));  // the start clock
  workers_.End(AddLive(0), Clock(9));
  workers_.End(AddLive(1), Clock(7));
  EXPECT_EQ(workers_.largest_end(), Clock(9));
  EXPECT_TRUE(workers_.Live().empty());
  EXPECT_EQ(workers_.MaxClock(), Clock(9));
}

TEST_F(WorkersTest, SilentWorkersAreFoundAndSilentJoinersForgotten) {
  const Incarnation live = AddLive(0), waiting = Add(1, kSecondUs);
  EXPECT_EQ(workers_.Silent(6 * kSecondUs, 0), std::vector{live});
  EXPECT_TRUE(workers_.Silent(6 * kSecondUs, 2 * kSecondUs).empty());
  workers_.DropSilent(6 * kSecondUs, 0);
  EXPECT_EQ(workers_.waiting(), 1u);
  workers_.DropSilent(6 * kSecondUs + 1, 0);
  EXPECT_EQ(workers_.Find(waiting), nullptr);
  EXPECT_EQ(workers_.Find(live)->incarnation, live);
}

// It sends one message a second.
TEST(Workers, AJoinerMayBeSilentForLongerThanAShortLease) {
  Workers workers({.ranks = 2, .lease_us = kSecondUs / 10, .nonces_kept = 8, .start_clock = Clock(3)});
  const Incarnation live(1), waiting(2);
  workers.Add(WorkerRank(0), live, 101, Peer(1), 0);
  workers.MakeLive(live, Clock(4), ViewVersion(1));  // and not welcomed yet
  workers.Add(WorkerRank(1), waiting, 102, Peer(2), 0);
  for (const TimeUs now : {kSecondUs, kJoinerSilenceMaxUs}) {
    workers.DropSilent(now, 0);
    EXPECT_TRUE(workers.Silent(now, 0).empty());
    EXPECT_EQ(workers.waiting(), 1u);
  }
  EXPECT_EQ(workers.Silent(kJoinerSilenceMaxUs + 1, 0), std::vector{live});
  workers.DropSilent(kJoinerSilenceMaxUs + 1, 0);
  EXPECT_EQ(workers.waiting(), 0u);
}

TEST_F(WorkersTest, AWorkerThatLeftGetsShutdownUntilItConfirms) {
  const Incarnation left = AddLive(0), dead = AddLive(1), waiting = Add(1);
  workers_.OnLeave(left);
  workers_.End(left, Clock(5));
  workers_.Fence(dead);
  std::map<Incarnation, Peer> peers;
  workers_.AddPeers(&peers);
  EXPECT_EQ(peers, (std::map<Incarnation, Peer>{{left, Peer(left.value)}, {waiting, Peer(waiting.value)}}));
  workers_.OnFarewell(left);
  peers.clear();
  workers_.AddPeers(&peers);
  EXPECT_FALSE(peers.contains(left));
}

TEST(ProcessStarts, TheOldestEndedStartsAreForgotten) {
  ProcessStarts starts(2);
  const auto is_over = [](Incarnation incarnation) { return incarnation != Incarnation(1); };
  starts.Add(91, Incarnation(1), is_over);
  starts.Add(92, Incarnation(2), is_over);
  EXPECT_EQ(starts.size(), 2u);  // at the limit
  starts.Add(93, Incarnation(3), is_over);
  EXPECT_EQ(starts.size(), 2u);  // one past it: the first is not over
  EXPECT_EQ(starts.Find(91), Incarnation(1));
  EXPECT_EQ(starts.Find(92), std::nullopt);
  EXPECT_EQ(starts.Find(93), Incarnation(3));
}

}  // namespace
}  // namespace tarn::scheduler

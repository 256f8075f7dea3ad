// Shows how a shard joins, adopts views, sends heartbeats, pauses and stops (N1, N3, N5, S1, S2), and how it handles
// dead workers (N6, M3, M4).
#include <map>

#include "sim/disks/memory_cold_store.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

class ShardMembershipTest : public ShardTest {
 protected:
  void JoinTwo() {
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  }
  Heartbeat LastHeartbeat() {
    const auto beats = Take<Heartbeat>();
    return beats.empty() ? Heartbeat{} : beats.back();
  }
};

TEST_F(ShardMembershipTest, N1JoinIsRepeatedUntilWelcome) {
  Shard shard({.shard = ShardId(3), .nonce = 8, .endpoint = "tcp://127.0.0.1:9", .shards_per_server = 2}, nullptr);
  shard.Start(now_, &out_);
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].to, kSchedulerPeer);
  const auto& join = std::get<tarn::Join>(out_[0].message.body);
  EXPECT_EQ(join.role, Role::kShard);
  EXPECT_EQ(join.rank, 3u);
  EXPECT_EQ(join.nonce, 8u);
  EXPECT_EQ(join.protocol_version, limits::kProtocolVersion);
  EXPECT_EQ(join.endpoint, "tcp://127.0.0.1:9");
  EXPECT_EQ(join.shards_per_server, 2u);
  EXPECT_EQ(out_[0].message.job, 0u);
  out_.clear();
  shard.OnTimer(shard.NextTimer() - 1, &out_);
  EXPECT_TRUE(out_.empty());
  shard.OnTimer(shard.NextTimer(), &out_);
  EXPECT_EQ(Take<tarn::Join>().size(), 1u);
}

TEST_F(ShardMembershipTest, N3WelcomeIsConfirmedAtOnce) {
  JoinTwo();
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(out_[0].message.sender.incarnation, Incarnation(5));
  EXPECT_EQ(out_[0].message.job, kJobFingerprint);
  EXPECT_EQ(LastHeartbeat().view, ViewVersion(1));
  SendWelcome("");  // again: nothing new
  EXPECT_TRUE(out_.empty());
}

TEST_F(ShardMembershipTest, AWelcomeOfAnotherProcessIsIgnored) {
  Shard shard({.shard = ShardId(0), .nonce = 8}, nullptr);
  shard.Start(now_, &out_);
  Welcome welcome;
  welcome.nonce = 9;
  Message message;
  message.sender.role = Role::kScheduler;
  message.body = welcome;
  shard.OnMessage(kSchedulerPeer, Message(message), now_, &out_);
  EXPECT_FALSE(shard.joined());
  EXPECT_FALSE(shard.stopped());
}

TEST_F(ShardMembershipTest, N3OnlyNewerViewsAreAdopted) {
  JoinTwo();
  view_.workers[1].state = WorkerState::kFencing;
  NextView();
  EXPECT_EQ(LastHeartbeat().view, ViewVersion(2));
  View old = view_;
  old.workers[1].state = WorkerState::kLive;
  FromScheduler(ViewUpdate{old});
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(shard_->view().workers[1].state, WorkerState::kFencing);
}

TEST_F(ShardMembershipTest, ControlMessagesOfOthersAreIgnored) {
  JoinTwo();
  out_.clear();
  Message message = FromWorker(0, 10, Shutdown{ErrorCode::kInternal, "no"});
  Deliver(message);
  message.sender.role = Role::kScheduler;
  Deliver(message);
  EXPECT_FALSE(shard_->stopped());
  message.job = 1;
  shard_->OnMessage(kSchedulerPeer, Message(message), now_, &out_);
  EXPECT_FALSE(shard_->stopped());
  EXPECT_TRUE(out_.empty());
}

TEST_F(ShardMembershipTest, HeartbeatsCarryTheMinimumClockAndCounters) {
  JoinTwo();
  Tick(0, 10, 3);
  Tick(1, 11, 2);
  out_.clear();
  shard_->OnTimer(shard_->NextTimer(), &out_);
  EXPECT_EQ(shard_->NextTimer(), 3'000'000);
  const Heartbeat beat = LastHeartbeat();
  EXPECT_EQ(beat.clock, Clock(2));
  EXPECT_FALSE(beat.counters.empty());
}

TEST_F(ShardMembershipTest, N5PausesWhenTheSchedulerIsSilentForALease) {
  JoinTwo();
  out_.clear();
  now_ += 10'000'000;
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  now_ += 1;
  Deliver(PushOf(0, 10, 5, 2, 0));
  Tick(0, 10, 1);
  EXPECT_TRUE(out_.empty());
  FromScheduler(HeartbeatAck{ViewVersion(1)});
  Deliver(PushOf(0, 10, 5, 2, 0));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
}

// A message waits for its rows when the pause begins, and they arrive before it ends.
TEST_F(ShardMembershipTest, N5MessagesThatWaitForRowsAreNotServedDuringAPause) {
  auto cold = std::make_unique<MemoryColdStore>([] {});
  MemoryColdStore* disk = cold.get();
  ShardOptions options;
  options.make_tier = [&](const Job&) -> Expected<Tier> { return Tier{std::move(cold), 1}; };
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate), options);
  const auto turn = [&] {
    while (disk->under_way() != 0) disk->RunOne();
    shard_->OnTier(now_, &out_);
  };
  std::map<PartitionId, std::uint64_t> pushed;
  for (Key key = 0; key < 200; ++key, turn()) Deliver(PushOf(0, 10, key, ++pushed[PartitionOfKey(key)], 0));
  ASSERT_GT(shard_->rows().tier()->cold_rows(), 100u);
  out_.clear();
  for (Key key = 0; key < 200; ++key) Deliver(PullOf(0, 10, key, 0, key + 1));
  const std::size_t answered = Take<PullReply>().size();
  ASSERT_LT(answered, 200u);
  now_ += 10'000'001;
  turn();
  turn();
  EXPECT_TRUE(out_.empty());
  FromScheduler(HeartbeatAck{ViewVersion(1)});
  for (int i = 0; i < 200; ++i) turn();
  EXPECT_EQ(Take<PullReply>().size(), 200 - answered);
}

// Pulls of a clock that does not open, under a budget and without.
TEST_F(ShardMembershipTest, T3ParkedPullsAreBoundedByTheBudget) {
  for (const bool tiered : {false, true}) {
    ShardOptions options;
    if (tiered)
      options.make_tier = [&](const Job&) -> Expected<Tier> {
        return Tier{std::make_unique<MemoryColdStore>(), std::size_t{4} << 20};
      };
    Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), options);
    std::uint64_t request = 0;
    bool refused = false;
    for (; request < 20'000 && !refused; refused = !Take<ErrorReply>().empty())
      Deliver(PullOf(0, 10, KeyIn(0), 1, ++request));
    EXPECT_EQ(refused, tiered);
    EXPECT_GT(request, 1000u);
  }
}

TEST_F(ShardMembershipTest, N6M3AFencedWorkerIsRefusedAndReported) {
  JoinTwo();
  Tick(1, 11, 3, 8);
  Deliver(PullOf(1, 11, 5, 3, 7));
  view_.workers[1].state = WorkerState::kFencing;
  NextView();
  const Heartbeat beat = LastHeartbeat();
  ASSERT_EQ(beat.fenced.size(), 1u);
  EXPECT_EQ(beat.fenced[0].incarnation, Incarnation(11));
  EXPECT_EQ(beat.fenced[0].tick, Clock(3));
  EXPECT_EQ(beat.fenced[0].position, (DataPosition{LeaseId(8), 3}));
  EXPECT_EQ(beat.fenced[0].pushed, Clock(0));
  Deliver(PushOf(1, 11, 5, 1, 3));
  EXPECT_EQ(TakeError(), ErrorCode::kFenced);
  Tick(1, 11, 4);
  EXPECT_EQ(TakeError(), ErrorCode::kFenced);
  // Its parked pull is gone; its tick still counts for the minimum clock.
  Tick(0, 10, 9);
  EXPECT_TRUE(Take<PullReply>().empty());
  EXPECT_EQ(shard_->minimum_clock(), Clock(3));
  shard_->OnTimer(shard_->NextTimer(), &out_);
  EXPECT_EQ(LastHeartbeat().fenced.size(), 1u);
}

TEST_F(ShardMembershipTest, M3ImmediatePushesAreReportedAsPushed) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  Deliver(PushOf(0, 10, 5, 1, 6));
  view_.workers[0].state = WorkerState::kFencing;
  NextView();
  EXPECT_EQ(LastHeartbeat().fenced[0].pushed, Clock(7));
}

TEST_F(ShardMembershipTest, M3TheVerdictDiscardsLaterPushesAndReleasesTheOthers) {
  JoinTwo();
  Deliver(PushOf(0, 10, 5, 1, 0, 2.0f));
  Deliver(PushOf(0, 10, 5, 2, 1, 2.0f));
  Deliver(PushOf(1, 11, 5, 1, 0, 4.0f));
  Deliver(PushOf(1, 11, 5, 2, 1, 64.0f));
  Tick(0, 10, 2);
  Deliver(PullOf(0, 10, 5, 2, 9));
  // The dead worker's tick to 1 has reached another shard only.
  view_.workers[1].state = WorkerState::kFencing;
  NextView();
  EXPECT_EQ(shard_->minimum_clock(), Clock(0));
  view_.workers[1].state = WorkerState::kEnded;
  view_.workers[1].end = Clock(1);
  out_.clear();
  NextView();
  EXPECT_EQ(shard_->minimum_clock(), Clock(2));
  EXPECT_EQ(events_.voided, std::vector{Sequence(2)});
  // Clock 0: (2 + 4) / 2. Clock 1 has a cohort of one: 2 / 1.
  EXPECT_EQ(Value(5), -5.0f);
  EXPECT_EQ(Take<PullReply>().size(), 1u);
}

TEST_F(ShardMembershipTest, AJoinerCountsFromItsJoinClock) {
  JoinTwo();
  view_.workers.push_back(LiveWorker(2, 12, 3));
  NextView();
  for (std::uint64_t clock = 0; clock < 4; ++clock) Deliver(PushOf(0, 10, 5, clock + 1, clock, 6.0f));
  out_.clear();
  Deliver(PushOf(2, 12, 5, 1, 2));
  EXPECT_EQ(TakeError(), ErrorCode::kInvalidArgument);
  Tick(0, 10, 4);
  Tick(1, 11, 4);
  EXPECT_EQ(shard_->minimum_clock(), Clock(3));
  EXPECT_EQ(Value(5), -9.0f);  // three clocks of 6 / 2
  Tick(2, 12, 4);
  EXPECT_EQ(Value(5), -11.0f);  // and one of 6 / 3
}

TEST_F(ShardMembershipTest, M4DroppingAnEntryDropsItsWatermarks) {
  JoinTwo();
  Deliver(PushOf(1, 11, 5, 1, 0));
  Tick(1, 11, 1);
  Tick(0, 10, 1);
  view_.workers[1].state = WorkerState::kEnded;
  view_.workers[1].end = Clock(1);
  NextView();
  const std::uint64_t before = shard_->StateHash().value();
  view_.workers.pop_back();
  NextView();
  EXPECT_NE(shard_->StateHash().value(), before);
  out_.clear();
  Deliver(PushOf(1, 11, 5, 1, 1));
  EXPECT_EQ(TakeError(), ErrorCode::kUnavailable);
}

TEST_F(ShardMembershipTest, S1ShutdownIsAnsweredOnceAndStopsTheShard) {
  JoinTwo();
  out_.clear();
  FromScheduler(Shutdown{ErrorCode::kIo, "disk full"});
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().reason, "disk full");
  const auto answers = Take<Shutdown>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].code, ErrorCode::kOk);
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_TRUE(out_.empty());
}

TEST_F(ShardMembershipTest, AnotherShapeOfATableStopsTheShard) {
  JoinTwo();
  view_.tables[0].dim = 9;
  NextView();
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(Take<Shutdown>().size(), 1u);
}

TEST_F(ShardMembershipTest, S2AFailedShardRepeatsItsReasonUntilItIsConfirmed) {
  JoinTwo();
  out_.clear();
  shard_->Abandon({ErrorCode::kIo, "disk full"}, &out_);
  EXPECT_EQ(Take<Shutdown>().size(), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(shard_->NextTimer(), now_ + 1'000'000);
    shard_->OnTimer(now_ + 999'999, &out_);
    EXPECT_TRUE(out_.empty());
    shard_->OnTimer(now_ += 1'000'000, &out_);
    ASSERT_EQ(out_.size(), 1u);
    EXPECT_EQ(out_[0].to, kSchedulerPeer);
    const auto told = Take<Shutdown>();
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].code, ErrorCode::kIo);
    EXPECT_EQ(told[0].reason, "shard 0: disk full");
  }
  NextView();  // no answer
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_TRUE(out_.empty());
  EXPECT_FALSE(shard_->ended());
  FromScheduler(Shutdown{ErrorCode::kIo, "shard 1: disk full too"});
  EXPECT_TRUE(shard_->ended());
  const auto answers = Take<Shutdown>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].code, ErrorCode::kOk);
  EXPECT_EQ(shard_->stop_reason().reason, "shard 0: disk full");  // its own
  shard_->OnTimer(now_ += 1'000'000, &out_);
  FromScheduler(Shutdown{});
  EXPECT_TRUE(out_.empty());
}

TEST_F(ShardMembershipTest, S2AfterAJumpInTimeTheReasonIsStillRepeated) {
  JoinTwo();
  shard_->Abandon({ErrorCode::kIo, "disk full"}, &out_);
  out_.clear();
  now_ += 100 * shard_->lease_us();
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(shard_->NextTimer(), now_);
    shard_->OnTimer(now_, &out_);
    EXPECT_FALSE(shard_->ended());
    EXPECT_EQ(Take<Shutdown>().size(), 1u);
    now_ += 1'000'000;
  }
  shard_->OnTimer(now_, &out_);
  EXPECT_TRUE(shard_->ended());
}

TEST_F(ShardMembershipTest, S2AShardWithoutConfirmationEndsAfterALease) {
  JoinTwo();
  shard_->Abandon({ErrorCode::kIo, "disk full"}, &out_);
  const TimeUs end = now_ + shard_->lease_us();
  while (shard_->NextTimer() < end) shard_->OnTimer(now_ = shard_->NextTimer(), &out_);
  EXPECT_EQ(shard_->NextTimer(), end);
  shard_->OnTimer(end - 1, &out_);
  EXPECT_FALSE(shard_->ended());
  out_.clear();
  shard_->OnTimer(end, &out_);
  EXPECT_TRUE(shard_->ended());
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(shard_->stop_reason().reason, "shard 0: disk full");
}

TEST_F(ShardMembershipTest, PartitionsDoNotMoveYet) {
  JoinTwo();
  view_.routes.owners[0] = ShardId(1);
  NextView();
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tarn::server

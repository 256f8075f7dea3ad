// Shows that a shard with a log acknowledges only what is durable (L1), and that its log restores it bit for bit,
// wherever it ended: random runs with pushes, ticks, deaths, joins, new tables and checkpoints, ended after each input.
#include <gtest/gtest.h>

#include "tests/unit/server/shard/shard_life.h"

namespace tarn::server {
namespace {

TEST(ShardLogTest, RecoversBitForBitAfterEachInput) {
  int from_checkpoint = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Life life({.seed = seed, .two_tables = 0.3});
    for (int step = 0; step < 100; ++step) {
      life.Step();
      life.Commit();
      life.Recover(false);
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(life.compared, 100);
    from_checkpoint += life.from_checkpoint;
  }
  EXPECT_GT(from_checkpoint, 500);
}

TEST(ShardLogTest, RecoversAfterPowerFailures) {
  int compared = 0;
  for (std::uint64_t seed = 100; seed <= 160; ++seed) {
    SCOPED_TRACE(seed);
    Life life({.seed = seed, .two_tables = 0.3});
    SplitMix random(seed);
    for (int step = 0; step < 80; ++step) {
      life.Step();
      if (random.Chance(0.3)) life.Write();
      if (random.Chance(0.2)) life.Recover(true);
      if (random.Chance(0.3)) life.Commit();
      if (testing::Test::HasFatalFailure()) return;
    }
    compared += life.compared;
  }
  EXPECT_GT(compared, 400);
}

// A message of worker 10 to a shard of FirstView.
Message FromWorker10(Body body) {
  Message message;
  message.job = kJobFingerprint;
  message.sender = {Role::kWorker, 0, Incarnation(10)};
  message.epoch = Epoch(1);
  message.body = std::move(body);
  return message;
}

Message PushOfOneKey(std::uint64_t sequence, const TableSpec& spec = TableOf(1)) {
  const Key key = 7;
  const PartitionId partition = PartitionOf(Positioner(spec, TableSalt(kJobSeed, spec.name))(key), kBits);
  PushPart part{.table = spec.id, .keys = {.count = 1, .sections = {{partition, 1, Sequence(sequence)}}}};
  part.keys.frame = Buffer::Copy(&key, sizeof key);
  part.values = Buffer::CopyOf(std::span<const float>(std::vector<float>(spec.dim, 1.0f)));
  return FromWorker10(Push{RequestId(sequence), Clock(0), {part}});
}

// The first push of a key of table 1, together with the n-th of table 3.
Message PushOfTwoTables(std::uint64_t n) {
  const Message first = PushOfOneKey(1);
  Message second = PushOfOneKey(n, TableOf(3));
  Section& section = PartOf<Push>(second).keys.sections[0];
  if (section.partition == PartOf<Push>(first).keys.sections[0].partition) ++section.sequence.value;
  return Joined<Push>(first, second);
}

class ShardWithLog : public testing::Test {
 protected:
  ShardWithLog() : node_(MemoryDisk(), &files_) {}
  void Join() {
    view_ = FirstView({LiveWorker(0, 10)});
    node_.Welcomed(view_, {.run = kRun}, "");
  }
  void Deliver(Message message) { node_.shard->OnMessage(kWorkerPeer, std::move(message), node_.now, &node_.out); }
  void Push(std::uint64_t sequence) { Deliver(PushOfOneKey(sequence)); }
  void Tick(std::uint64_t clock) { Deliver(FromWorker10(tarn::Tick{Clock(clock), {LeaseId(1), clock}, {}})); }

  MemoryCheckpointFiles files_;
  Node node_;
  View view_;
};

TEST_F(ShardWithLog, NothingIsAcknowledgedBeforeItIsDurable) {
  Join();
  for (const Heartbeat& beat : node_.Take<Heartbeat>())
    EXPECT_EQ(beat.view, ViewVersion(0)) << "the view is not confirmed yet";
  node_.Commit();
  EXPECT_EQ(node_.Take<Heartbeat>().size(), 1u);
  Push(1);
  Tick(1);
  EXPECT_TRUE(node_.out.empty());
  node_.log.Write();
  node_.shard->OnLogSynced(node_.now, &node_.out);
  EXPECT_TRUE(node_.out.empty()) << "written is not durable";
  node_.Commit();
  ASSERT_EQ(node_.out.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PushAck>(node_.out[0].message.body));
  EXPECT_TRUE(std::holds_alternative<TickAck>(node_.out[1].message.body));
}

TEST_F(ShardWithLog, ARepeatedPushWaitsForTheFirst) {
  Join();
  node_.Commit();
  node_.out.clear();
  Push(1);
  Push(1);
  EXPECT_TRUE(node_.out.empty());
  node_.Commit();
  EXPECT_EQ(node_.Take<PushAck>().size(), 2u);
  Push(1);
  EXPECT_EQ(node_.Take<PushAck>().size(), 1u) << "durable long since";
}

// While the disk stalls, a worker repeats its unacknowledged pushes; one answer to each is enough (L7).
TEST_F(ShardWithLog, RepetitionsThatWaitForTheDiskAreMerged) {
  Join();
  node_.Commit();
  node_.out.clear();
  Push(1);
  Push(2);
  Push(4);  // refused: out of order
  Tick(1);
  for (int again = 0; again < 1000; ++again) {
    Push(1);
    Push(2);
    Push(4);
    Tick(1);
    if (again % 10 == 0) {
      node_.now += 1'000'000;
      node_.shard->OnTimer(node_.now, &node_.out);
    }
  }
  node_.out.clear();
  node_.Commit();
  std::vector<PushAck> acks;
  std::size_t ticks = 0, beats = 0;
  for (const Outgoing& outgoing : node_.out) {
    if (const auto* ack = std::get_if<PushAck>(&outgoing.message.body)) acks.push_back(*ack);
    ticks += std::holds_alternative<TickAck>(outgoing.message.body);
    beats += std::holds_alternative<Heartbeat>(outgoing.message.body);
  }
  ASSERT_EQ(acks.size(), 3u) << "two pushes, and all that came again";
  EXPECT_EQ(acks[2].sections[0].code, ErrorCode::kOk);
  EXPECT_EQ(acks[2].sections[0].sequence, Sequence(2));
  EXPECT_EQ(ticks, 2u);
  EXPECT_LE(beats, 2u);
}

TEST_F(ShardWithLog, HeartbeatsReportOnlyDurableState) {
  Join();
  node_.Commit();
  Tick(3);
  node_.now += 2'000'000;
  node_.shard->OnTimer(node_.now, &node_.out);
  for (const Heartbeat& beat : node_.Take<Heartbeat>()) EXPECT_EQ(beat.clock, Clock(0));
  node_.Commit();
  const auto beats = node_.Take<Heartbeat>();
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].clock, Clock(3));
}

// A shard whose disk stalls must not seem dead, and must not report state that is not durable.
TEST_F(ShardWithLog, WhileTheDiskStallsTheLastHeartbeatIsRepeated) {
  const auto beats_after_a_while = [this] {
    node_.now += 2'000'000;
    node_.shard->OnTimer(node_.now, &node_.out);
    return node_.Take<Heartbeat>();
  };
  Join();
  const auto alive = beats_after_a_while();
  ASSERT_FALSE(alive.empty());
  for (const Heartbeat& beat : alive)
    EXPECT_EQ(beat.view, ViewVersion(0)) << "nothing was ever durable: it lives, and confirms nothing";
  node_.Commit();
  EXPECT_FALSE(node_.Take<Heartbeat>().empty());
  for (std::uint64_t clock = 1; clock <= 3; ++clock) {
    Tick(clock);
    for (int again = 0; again < 2; ++again) {
      const auto beats = beats_after_a_while();
      ASSERT_EQ(beats.size(), 1u);
      EXPECT_EQ(beats[0].clock, Clock(clock - 1));
    }
    node_.Commit();
    const auto beats = node_.Take<Heartbeat>();
    ASSERT_EQ(beats.size(), 1u) << "of those that waited the last";
    EXPECT_EQ(beats[0].clock, Clock(clock));
  }
}

TEST_F(ShardWithLog, APushOfTwoTablesHasARecordForEachAndIsReplayed) {
  view_ = FirstView({LiveWorker(0, 10)});
  view_.tables.push_back(TableOf(3));
  node_.Welcomed(view_, {.run = kRun}, "");
  node_.Commit();
  node_.out.clear();
  const std::uint64_t before = node_.log.appended().value;
  const auto records = [&] { return node_.log.appended().value - before; };
  Deliver(PushOfTwoTables(1));
  EXPECT_EQ(records(), 2u);
  Deliver(PushOfTwoTables(1));
  EXPECT_EQ(records(), 2u) << "a repetition";
  Deliver(PushOfTwoTables(2));
  EXPECT_EQ(records(), 3u) << "new for table 3 only";
  EXPECT_TRUE(node_.out.empty());
  Tick(1);
  node_.Commit();
  EXPECT_FALSE(node_.Take<PushAck>().empty());

  Node again(node_.disk.Copy(), &files_);
  view_.version = ViewVersion(0);
  again.Welcomed(view_, {.run = kRun, .recover = true}, "");
  ASSERT_FALSE(again.shard->stopped()) << again.shard->stop_reason().reason;
  EXPECT_EQ(again.shard->DurableHash().value(), node_.shard->DurableHash().value());
  const Store& restored = again.shard->rows();
  const Store& rows = node_.shard->rows();
  EXPECT_EQ(restored.row_count(), 2u);
  for (const TableSpec& table : view_.tables)
    EXPECT_EQ(restored.Values(table.id, 7).value(), rows.Values(table.id, 7).value());
  for (std::uint32_t p = 0; p < 1u << kBits; ++p)
    EXPECT_EQ(restored.Find(PartitionId(p))->watermarks().entries(), rows.Find(PartitionId(p))->watermarks().entries());
  again.shard->OnMessage(kWorkerPeer, PushOfTwoTables(2), again.now, &again.out);
  EXPECT_EQ(again.shard->counters().pushes_repeated, 2u);
}

TEST_F(ShardWithLog, AJobWithALogNeedsAShardWithALog) {
  view_ = FirstView({LiveWorker(0, 10)});
  node_.Welcomed(view_, {}, "");
  EXPECT_TRUE(node_.shard->stopped());
  EXPECT_EQ(node_.shard->stop_reason().code, ErrorCode::kInvalidArgument);
}

TEST_F(ShardWithLog, ADamagedLogStopsTheShard) {
  Join();
  Push(1);
  node_.Commit();
  Push(2);
  node_.Commit();
  MemoryDisk disk = node_.disk.Copy();
  (*disk.Find(std::string(kFolder) + "/" + SegmentName(1)))[kLogPage + 50] ^= std::byte{1};
  Node again(std::move(disk), &files_);
  again.Welcomed(view_, {.run = kRun, .recover = true}, "");
  ASSERT_TRUE(again.shard->stopped());
  EXPECT_EQ(again.shard->stop_reason().code, ErrorCode::kCorrupt);
  const std::string& reason = again.shard->stop_reason().reason;
  EXPECT_NE(reason.find(SegmentName(1)), std::string::npos) << reason;
  EXPECT_NE(reason.find("there is no checkpoint from which to continue"), std::string::npos) << reason;
}

// The log ends before a record that the scheduler knows to be durable.
TEST_F(ShardWithLog, ALogThatEndsTooEarlyStopsTheShard) {
  Join();
  node_.Commit();
  Node again(node_.disk.Copy(), &files_);
  again.Welcomed(view_, {.run = kRun, .recover = true, .at_least = LogSequence(3)}, "");
  ASSERT_TRUE(again.shard->stopped());
  EXPECT_EQ(again.shard->stop_reason().code, ErrorCode::kCorrupt);
}

// Rule G5: the scheduler starts from a state that is older than the log, and would reuse view versions that the log
// has.
TEST_F(ShardWithLog, AnOlderStateOfTheSchedulerIsRefused) {
  Join();
  for (std::uint64_t version = 2; version <= 3; ++version) {
    view_.version = ViewVersion(version);
    node_.FromScheduler(ViewUpdate{view_});
  }
  node_.Commit();
  for (std::uint64_t version = 2; version <= 4; ++version) {
    Node again(node_.disk.Copy(), &files_);
    view_.version = ViewVersion(version);
    again.Welcomed(view_, {.run = kRun, .recover = true}, "");
    ASSERT_EQ(again.shard->stopped(), version <= 3) << version;
    if (version == 4) continue;
    EXPECT_EQ(again.shard->stop_reason().code, ErrorCode::kCorrupt);
    EXPECT_NE(again.shard->stop_reason().reason.find("scheduler.state"), std::string::npos);
  }
}

// A verdict closes a clock just as the time is set again: a replay touches rows in the same second as the first run.
TEST_F(ShardWithLog, TimeAndViewsAreReplayedInTheirOrder) {
  TableSpec table = TableOf(1);
  table.consistency.apply = ApplyMode::kAggregated;
  table.life = {.on = true, .expire_seconds = 1000};
  view_ = FirstView({LiveWorker(0, 10), LiveWorker(1, 11)}, table);
  node_.Welcomed(view_, {.run = kRun}, "");
  Push(1);
  Tick(1);
  node_.now += 5'000'000;
  view_.workers[1].state = WorkerState::kEnded;
  ++view_.version.value;
  node_.FromScheduler(ViewUpdate{view_});
  ASSERT_EQ(node_.shard->rows().row_count(), 1u);
  node_.Commit();

  Node again(node_.disk.Copy(), &files_);
  view_.version = ViewVersion(0);
  again.Welcomed(view_, {.run = kRun, .recover = true}, "");
  ASSERT_FALSE(again.shard->stopped()) << again.shard->stop_reason().reason;
  EXPECT_EQ(again.shard->DurableHash().value(), node_.shard->DurableHash().value());
}

// Rows that are created before the time is next set live as long as all others.
TEST_F(ShardWithLog, ALaterTableHasTheTimeOfTheOthers) {
  TableSpec first = TableOf(3), later = TableOf(1);
  first.life = later.life = {.on = true, .expire_seconds = 160};
  node_.now = 1'000'000'000'000;
  view_ = FirstView({LiveWorker(0, 10)}, first);
  node_.Welcomed(view_, {.run = kRun}, "");
  node_.now += 10'000;
  view_.tables.push_back(later);
  ++view_.version.value;
  node_.FromScheduler(ViewUpdate{view_});
  Push(1);
  const std::uint64_t born = node_.shard->DurableHash().value();
  for (int second = 0; second < 100; ++second) {
    node_.now += 1'000'000;
    node_.shard->OnTimer(node_.now, &node_.out);
  }
  EXPECT_EQ(node_.shard->DurableHash().value(), born) << "it has expired long before its time";
}

// Pushes until the log fails at operation n. Expects that every acknowledged push is recovered.
void PushUntilItFails(FaultKind kind, std::uint64_t n, bool* failed) {
  MemoryCheckpointFiles files;
  Fault fault{.at = n, .kind = kind};
  Node node(MemoryDisk(), &files, 0, false, &fault);
  const View view = FirstView({LiveWorker(0, 10)});
  node.Welcomed(view, {.run = kRun}, "");
  std::uint64_t acked = 0;
  bool begun = false;
  for (std::uint64_t sequence = 1; sequence <= 6 && !node.shard->stopped(); ++sequence) {
    node.Commit();
    for (const Heartbeat& beat : node.Take<Heartbeat>()) begun |= beat.view != ViewVersion(0);
    node.shard->OnMessage(kWorkerPeer, PushOfOneKey(sequence), node.now, &node.out);
    node.Commit();
    for (const PushAck& ack : node.Take<PushAck>()) acked = ack.sections[0].sequence.value;
  }
  *failed = node.shard->stopped();
  if (*failed) {
    EXPECT_EQ(node.shard->stop_reason().code, ErrorCode::kIo);
    EXPECT_NE(node.shard->stop_reason().reason.find(kFolder), std::string::npos) << node.shard->stop_reason().reason;
  }
  if (!begun) return;
  MemoryDisk disk = node.disk.Copy();
  disk.EndProcess();
  Node again(std::move(disk), &files);
  View older = view;
  older.version = ViewVersion(0);
  again.Welcomed(older, {.run = kRun, .recover = true}, "");
  ASSERT_FALSE(again.shard->stopped()) << again.shard->stop_reason().reason;
  if (acked == 0) return;
  again.shard->OnMessage(kWorkerPeer, PushOfOneKey(acked), again.now, &again.out);
  EXPECT_EQ(again.shard->counters().pushes_repeated, 1u) << "operation " << n << ", push " << acked;
}

TEST(ShardLogTest, AnyOperationOfTheLogMayFail) {
  for (FaultKind kind : {FaultKind::kError, FaultKind::kShortWrite, FaultKind::kFull, FaultKind::kHalt}) {
    bool failed = true;
    std::uint64_t n = 0;
    for (; failed; ++n) PushUntilItFails(kind, n, &failed);
    EXPECT_GT(n, 20u);
  }
}

}  // namespace
}  // namespace tarn::server

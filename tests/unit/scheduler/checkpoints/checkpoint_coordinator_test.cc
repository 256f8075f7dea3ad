// Shows CheckpointCoordinator alone, with a fleet whose messages the test sends: how a request becomes a manifest, and
// what follows a cut that fails, loses its base or is voided.
#include "scheduler/checkpoints/checkpoint_coordinator.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/formed_fleet.h"
#include "tests/unit/scheduler/memory_store.h"

namespace tarn::scheduler {
namespace {

class FixedManifest final : public ManifestSource {
 public:
  Manifest Make(const Positions& at, bool, TimeUs) const override {
    positions = at;
    Manifest manifest;
    manifest.job_text = "job";
    return manifest;
  }
  std::uint64_t workers_died() const override { return 5; }

  mutable Positions positions;  // of the last manifest
};

class CoordinatorTest : public testing::Test {
 protected:
  explicit CoordinatorTest(bool at_clock = false)
      : cuts_(OptionsOf(at_clock), {.membership = &fleet_.membership,
                                    .leases = &leases_,
                                    .store = &store_,
                                    .notes = &notes_,
                                    .manifests = &manifests_}) {
    for (const auto& [id, worker] : fleet_.membership.workers().all()) leases_.Join(id, worker.rank, worker.join);
  }
  static CheckpointCoordinator::Options OptionsOf(bool at_clock) {
    CheckpointCoordinator::Options options;
    options.at_clock = at_clock;
    options.at_clock_for_programs = true;
    options.checkpoints.directory = "dir";
    options.checkpoints.storage.checkpoint_chain = 8;
    return options;
  }
  static Job TheJob() {
    Job job;
    job.fleet.workers = 2;
    return job;
  }
  const CheckpointOrder& order() const { return fleet_.membership.view().checkpoint; }
  // Orders a checkpoint at once.
  void Order(CutReason reason) {
    cuts_.Want(reason);
    ASSERT_FALSE(cuts_.NeedsAgreement(moment_));
    ASSERT_TRUE(cuts_.checkpoints().pending());
  }
  void SendPart(ErrorCode code = ErrorCode::kOk) {
    CheckpointPart part;
    part.id = order().id;
    part.code = code;
    part.message = "why";
    part.max_clock = Clock(12);
    part.files = {{"shard-0", 100, 1}};
    part.whole_hash = 77;
    cuts_.OnShardPart(ShardId(0), part);
  }
  CheckpointCoordinator::Step Advance() { return cuts_.Advance(moment_, fleet_.mail); }
  // Ends the store's operations. Returns the last cut that ended with them.
  std::optional<CutEnd> EndWrites() {
    std::optional<CutEnd> end;
    for (const StoreWritten& written : store_.TakeWritten())
      end = cuts_.OnManifestWritten(written, moment_, fleet_.mail);
    return end;
  }
  std::string TakeNote() {
    const auto notes = notes_.Take();
    return notes.empty() ? std::string() : notes.back().text;
  }

  FormedFleet fleet_{2};
  Leases leases_{TheJob(), Clock(0)};
  MemoryStore store_;
  Notes notes_;
  FixedManifest manifests_;
  CheckpointCoordinator cuts_;
  CutMoment moment_{.now = 50};
};

class CoordinatorAtClockTest : public CoordinatorTest {
 protected:
  CoordinatorAtClockTest() : CoordinatorTest(true) {}
};

TEST_F(CoordinatorTest, ARequestBecomesAnOrderAPartAndAManifest) {
  EXPECT_FALSE(cuts_.UnderWay());
  moment_.at_boundary = true;
  Order(CutReason::kRequested);
  EXPECT_EQ(order().directory, "dir/ckpt-1");
  EXPECT_FALSE(order().at_clock);
  EXPECT_FALSE(Advance().changed);
  SendPart();
  EXPECT_TRUE(Advance().changed);
  EXPECT_FALSE(Advance().changed);  // the manifest is being written
  const auto end = EndWrites();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->reason, CutReason::kRequested);
  EXPECT_FALSE(end->failed);
  EXPECT_EQ(order().id, CheckpointId(0));
  EXPECT_FALSE(cuts_.UnderWay());
  EXPECT_TRUE(cuts_.state_is_cut());
  EXPECT_EQ(cuts_.whole().directory, "dir/ckpt-1");
  EXPECT_EQ(TakeNote(), "checkpoint 1 (requested) is complete: dir/ckpt-1");
  const Manifest& manifest = store_.manifests.at("dir/ckpt-1");
  EXPECT_EQ(manifest.job_text, "job");
  EXPECT_EQ(manifest.resume_clock, Clock(12));
  EXPECT_EQ(manifest.workers_died, 5u);
  EXPECT_EQ(manifest.state_hash, 77u);
  cuts_.OnGrant();
  EXPECT_FALSE(cuts_.state_is_cut());
}

TEST_F(CoordinatorTest, AProgramMayHavePushedAfterACutAtABoundary) {
  moment_.at_boundary = true;
  Order(CutReason::kRequested);
  SendPart();
  EXPECT_TRUE(Advance().changed);
  ASSERT_TRUE(EndWrites());
  EXPECT_TRUE(cuts_.state_is_cut()) << "without leases nobody pushes";
  Join join{.role = Role::kWorker, .rank = 0, .nonce = 99, .protocol_version = limits::kProtocolVersion};
  join.is_program = true;
  fleet_.membership.OnJoin(Peer(kFirstAcceptedPeer + 900), join, moment_.now, fleet_.mail);
  EXPECT_FALSE(cuts_.state_is_cut());
}

TEST_F(CoordinatorTest, OneCutAtATimeAndTheMostImportantReasonIsNext) {
  Order(CutReason::kPeriodic);
  cuts_.Want(CutReason::kStop);
  cuts_.Want(CutReason::kRequested);
  EXPECT_FALSE(cuts_.NeedsAgreement(moment_));
  EXPECT_EQ(order().id, CheckpointId(1));
  SendPart();
  Advance();
  EndWrites();
  EXPECT_FALSE(cuts_.NeedsAgreement(moment_));
  EXPECT_EQ(order().id, CheckpointId(2));
  EXPECT_EQ(cuts_.checkpoints().pending()->reason, CutReason::kStop);
  EXPECT_EQ(order().base, CheckpointId(1));
}

TEST_F(CoordinatorTest, AHashWritesNoManifest) {
  Order(CutReason::kHash);
  EXPECT_TRUE(order().directory.empty());
  SendPart();
  const auto step = Advance();
  ASSERT_TRUE(step.end);
  EXPECT_FALSE(step.end->failed);
  EXPECT_EQ(cuts_.checkpoints().hash(), 77u);
  EXPECT_EQ(cuts_.whole().id, CheckpointId(0));
  EXPECT_TRUE(store_.under_way.empty());
}

TEST_F(CoordinatorTest, AFailedPartFailsTheCheckpoint) {
  Order(CutReason::kFinal);
  SendPart(ErrorCode::kIo);
  const auto step = Advance();
  ASSERT_TRUE(step.end && step.end->failed);
  EXPECT_EQ(step.end->failed->code, ErrorCode::kIo);
  EXPECT_EQ(step.end->failed->message, "checkpoint 1 (final) could not be written to dir/ckpt-1: shard 0: why");
  EXPECT_EQ(TakeNote(), step.end->failed->message);
  EXPECT_FALSE(cuts_.UnderWay());
  EXPECT_TRUE(store_.removed.empty());
  fleet_.Confirm();
  Advance();
  EXPECT_EQ(store_.removed, std::vector<std::string>{"dir/ckpt-1"});
}

TEST_F(CoordinatorTest, AFailedManifestFailsTheCheckpoint) {
  store_.fail = true;
  Order(CutReason::kBest);
  SendPart();
  Advance();
  const auto end = EndWrites();
  ASSERT_TRUE(end && end->failed);
  EXPECT_EQ(end->reason, CutReason::kBest);
  EXPECT_TRUE(cuts_.checkpoints().newest().empty());
}

TEST_F(CoordinatorTest, AfterALostBaseAFullCheckpointFollows) {
  Order(CutReason::kPeriodic);
  SendPart();
  Advance();
  EndWrites();
  Order(CutReason::kPeriodic);
  ASSERT_EQ(order().base, CheckpointId(1));
  SendPart(ErrorCode::kNotFound);
  const auto step = Advance();
  EXPECT_TRUE(step.changed);
  EXPECT_FALSE(step.end);
  EXPECT_FALSE(cuts_.NeedsAgreement(moment_));
  EXPECT_EQ(order().id, CheckpointId(3));
  EXPECT_EQ(order().base, CheckpointId(0));
}

TEST_F(CoordinatorTest, AToolIsAnsweredOnceTheCheckpointIsComplete) {
  fleet_.Clear();
  cuts_.OnRequest(Peer(40), {.number = 6}, {}, "waits for worker 1", fleet_.mail);
  ASSERT_NE(fleet_.Last<CheckpointRequest>(), nullptr);
  EXPECT_EQ(fleet_.Last<CheckpointRequest>()->message, "waits for worker 1");
  EXPECT_TRUE(cuts_.UnderWay());
  cuts_.NeedsAgreement(moment_);
  SendPart();
  Advance();
  EndWrites();
  EXPECT_EQ(fleet_.Last<CheckpointRequest>()->directory, "dir/ckpt-1");
  fleet_.Clear();
  EXPECT_TRUE(cuts_.AnswerAgain(Peer(40), 6, fleet_.mail));
  EXPECT_EQ(fleet_.Last<CheckpointRequest>()->directory, "dir/ckpt-1");
  cuts_.OnRequest(Peer(40), {.number = 7}, Fail(ErrorCode::kCancelled, "the run is ending"), "", fleet_.mail);
  EXPECT_EQ(fleet_.Last<CheckpointRequest>()->code, ErrorCode::kCancelled);
}

TEST_F(CoordinatorTest, AStopAnswersToolsAndRemovesTheDirectory) {
  cuts_.OnRequest(Peer(40), {.number = 6}, {}, "", fleet_.mail);
  cuts_.NeedsAgreement(moment_);
  cuts_.OnStop("stopped", fleet_.mail);
  EXPECT_EQ(fleet_.Last<CheckpointRequest>()->message, "the run ended before the checkpoint: stopped");
  EXPECT_TRUE(store_.removed.empty());
  cuts_.OnStopped();
  EXPECT_EQ(store_.removed, std::vector<std::string>{"dir/ckpt-1"});
}

TEST_F(CoordinatorTest, K9ATableWithWorkerStateAddsBlobsToTheOrder) {
  Order(CutReason::kPeriodic);
  EXPECT_FALSE(order().blobs);
  TableSpec table;
  table.id = TableId(1);
  table.push_codec = ValueCodec::kTopK;
  fleet_.membership.current_view()->PutTable(table);
  cuts_.OnTable();
  EXPECT_TRUE(order().blobs);
  SendPart();
  EXPECT_FALSE(Advance().changed);  // the workers' states are missing
}

// A worker that drains at its own clock may make others wait for rows; the state of those would be missing.
TEST_F(CoordinatorTest, K1WithProgramStateABoundedTableIsCutAtAClock) {
  EXPECT_FALSE(cuts_.CutsAtClock());
  fleet_.membership.OnHeartbeat(fleet_.Newest(), Heartbeat{.keeps_state = true}, 0, fleet_.mail);
  EXPECT_TRUE(cuts_.CutsAtClock());
  cuts_.Want(CutReason::kStop);
  EXPECT_TRUE(cuts_.NeedsAgreement(moment_));
  EXPECT_FALSE(cuts_.WantedDrains());
  EXPECT_TRUE(cuts_.PlaceOrder(Clock(20), moment_));
  EXPECT_TRUE(order().at_clock);
  EXPECT_TRUE(order().blobs);
}

// Such a program may wait for a push before it saves its state.
TEST_F(CoordinatorTest, K12PushesOfProgramsThatKeepStateAreAcceptedAtAStop) {
  CheckpointCoordinator::Options options = OptionsOf(false);
  options.at_clock_for_programs = false;
  for (const bool keeps_state : {false, true}) {
    FormedFleet fleet(2);
    CheckpointCoordinator cuts(options, {.membership = &fleet.membership,
                                         .leases = &leases_,
                                         .store = &store_,
                                         .notes = &notes_,
                                         .manifests = &manifests_});
    fleet.membership.OnHeartbeat(fleet.Newest(), Heartbeat{.keeps_state = keeps_state}, 0, fleet.mail);
    cuts.Want(CutReason::kStop);
    EXPECT_FALSE(cuts.NeedsAgreement(moment_));
    const CheckpointOrder& order = fleet.membership.view().checkpoint;
    EXPECT_EQ(order.blobs, keeps_state);
    EXPECT_EQ(order.last, !keeps_state);
  }
}

// One that waits for a push after its last lease could not save the state that the checkpoint needs.
TEST_F(CoordinatorTest, K12PushesOfProgramsThatKeepStateAreAcceptedAtABoundary) {
  moment_.at_boundary = moment_.last_epoch = true;
  Order(CutReason::kBest);
  EXPECT_TRUE(order().last);
  SendPart();
  Advance();
  ASSERT_TRUE(EndWrites());
  fleet_.membership.OnHeartbeat(fleet_.Newest(), Heartbeat{.keeps_state = true}, 0, fleet_.mail);
  Order(CutReason::kFinal);
  EXPECT_TRUE(order().whole_hash);
  EXPECT_FALSE(order().last);
}

// What a program did after the cut is not in it, and a resume must not skip the data of those clocks.
TEST_F(CoordinatorTest, K2TheResumeClockIsThatOfTheCut) {
  Order(CutReason::kPeriodic);
  const Incarnation worker = fleet_.Newest();
  fleet_.membership.OnLeave(worker, Leave{Clock(50), {}});
  fleet_.Confirm();
  fleet_.membership.TakeVerdicts();
  EXPECT_EQ(fleet_.membership.workers().largest_end(), Clock(50));
  SendPart();
  Advance();
  ASSERT_TRUE(EndWrites());
  EXPECT_EQ(store_.manifests.at("dir/ckpt-1").resume_clock, Clock(12));
}

TEST_F(CoordinatorAtClockTest, K1WorkersAgreeOnAClockWhileTheyTrain) {
  cuts_.Want(CutReason::kPeriodic);
  EXPECT_TRUE(cuts_.NeedsAgreement(moment_));
  EXPECT_FALSE(cuts_.WantedDrains());
  EXPECT_EQ(order().id, CheckpointId(0));
  EXPECT_TRUE(cuts_.PlaceOrder(Clock(20), moment_));
  EXPECT_FALSE(cuts_.PlaceOrder(Clock(20), moment_));
  EXPECT_EQ(order().clock, Clock(20));
  EXPECT_EQ(leases_.ceiling(), Clock(20));
  EXPECT_EQ(cuts_.Awaited().clock, Clock(20));
  EXPECT_FALSE(cuts_.OrderConfirmed());
  fleet_.Confirm();
  EXPECT_TRUE(cuts_.OrderConfirmed());
  SendPart();
  EXPECT_FALSE(Advance().changed);  // the workers have not reached it
  for (const WorkerNode* worker : fleet_.membership.workers().Live()) {
    CheckpointPart part;
    part.id = order().id;
    cuts_.OnWorkerPart(worker->incarnation, part);
  }
  EXPECT_EQ(cuts_.Awaited().clock, std::nullopt);
  Advance();
  ASSERT_TRUE(EndWrites());
  EXPECT_EQ(store_.manifests.at("dir/ckpt-1").resume_clock, Clock(20));
}

TEST_F(CoordinatorAtClockTest, K1RowsOfAWorkerThatJoinedAfterTheClockAndEndedDoNotCount) {
  cuts_.Want(CutReason::kPeriodic);
  cuts_.NeedsAgreement(moment_);
  cuts_.PlaceOrder(Clock(20), moment_);
  for (const WorkerNode* worker : fleet_.membership.workers().Live()) {
    CheckpointPart part;
    part.id = order().id;
    cuts_.OnWorkerPart(worker->incarnation, part);
  }
  const Incarnation late(99);
  cuts_.OnVerdict({.worker = late, .rank = WorkerRank(1), .join = Clock(20), .end = Clock(22)});
  SendPart();
  Advance();
  ASSERT_TRUE(EndWrites());
  ASSERT_TRUE(manifests_.positions.contains(late));
  EXPECT_EQ(manifests_.positions.at(late).lease, LeaseId(0));
}

TEST_F(CoordinatorAtClockTest, ADeathBeyondTheClockVoidsTheCut) {
  cuts_.Want(CutReason::kBest);
  cuts_.NeedsAgreement(moment_);
  cuts_.PlaceOrder(Clock(20), moment_);
  cuts_.OnVerdict({.worker = fleet_.Newest(), .rank = WorkerRank(1), .end = Clock(21)});
  EXPECT_EQ(TakeNote(), "checkpoint 1 (best) is abandoned: worker 1 ended before all of its state was in it");
  EXPECT_EQ(order().id, CheckpointId(0));
  EXPECT_TRUE(cuts_.UnderWay());  // another follows
}

}  // namespace
}  // namespace tarn::scheduler

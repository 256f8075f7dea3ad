// Shows that the state of the scheduler in a run with a log is on disk before messages depend on it (rule G1), and what
// happens if the disk fails or stalls.
#include "scheduler/state/state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

TEST(State, IsWrittenBeforeItIsSent) {
  FakeFleet fleet(LogJob(2, 2));
  fleet.rows[0] = 300;
  int welcomes = 0, grants = 0;
  fleet.on_send = [&](const Outgoing& outgoing) {
    if (fleet.scheduler.stopping()) return;
    const SchedulerState& state = fleet.store.state.value();
    if (const auto* welcome = std::get_if<Welcome>(&outgoing.message.body)) {
      ++welcomes;
      EXPECT_LT(welcome->incarnation, state.progress.next_incarnation);
      EXPECT_LE(welcome->view.version, state.version);
      EXPECT_TRUE(state.begun || welcome->log.run == 17) << "a worker begins once every shard has a log";
    }
    if (const auto* update = std::get_if<ViewUpdate>(&outgoing.message.body)) {
      EXPECT_LE(update->view.version, state.version);
    }
    if (const auto* reply = std::get_if<LeaseReply>(&outgoing.message.body))
      for (const LeaseGrant& grant : reply->grants) {
        ++grants;
        EXPECT_LE(grant.lease, state.last_lease);
      }
  };
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_GE(welcomes, 4);
  EXPECT_EQ(grants, 10);
  EXPECT_FALSE(fleet.store.state.has_value()) << "the run is over";
}

// Three messages arrive together: one changes the view, one causes it to be sent, and one ends the run.
TEST(State, TheLastViewIsWrittenAlsoIfTheRunEndsWithIt) {
  FakeFleet fleet(LogJob(1, 2));
  fleet.rows[0] = 300;
  fleet.AddAll();
  for (auto& worker : fleet.workers) fleet.Work(*worker);
  fleet.Pass(0.6);
  const ViewVersion before = fleet.scheduler.view().version;
  const auto hear = [&](Peer from, const Sender& sender, Body body) {
    Message message;
    message.job = Fingerprint(fleet.job);
    message.sender = sender;
    message.body = std::move(body);
    fleet.scheduler.Handle(from, std::move(message), fleet.now);
  };
  const FakeShard& shard = *fleet.shards[0];
  const FakeWorker& leaver = *fleet.workers[0];
  const Sender of_shard{Role::kShard, 0, shard.incarnation};
  hear(leaver.peer, {Role::kWorker, leaver.rank.value, leaver.incarnation}, Leave{});
  hear(shard.peer, of_shard, Heartbeat{.view = before});
  hear(shard.peer, of_shard, Shutdown{ErrorCode::kIo, "the disk is gone"});
  Outbox out;
  fleet.scheduler.Settle(fleet.now, &out);
  ASSERT_TRUE(fleet.scheduler.stopping());
  EXPECT_GT(fleet.scheduler.view().version, before);
  fleet.Pass(0.5);
  EXPECT_EQ(fleet.store.state->version, fleet.scheduler.view().version);
}

// Returns whether a message depends on the state.
bool TellsOfState(const Body& body) {
  return std::holds_alternative<LeaseReply>(body) || std::holds_alternative<ViewUpdate>(body) ||
         std::holds_alternative<Welcome>(body);
}

TEST(State, AStateThatCannotBeWrittenIsNotSentAndTheThirdFailureEndsTheRun) {
  FakeFleet fleet(LogJob(1, 1));
  fleet.rows[0] = 300;
  fleet.AddAll();
  fleet.store.fail_state = true;
  int heard = 0;
  fleet.on_send = [&](const Outgoing& outgoing) {
    EXPECT_FALSE(TellsOfState(outgoing.message.body));
    heard += std::holds_alternative<HeartbeatAck>(outgoing.message.body);
  };
  fleet.Work(*fleet.workers[0]);
  fleet.Pass(18);
  EXPECT_FALSE(fleet.scheduler.stopping()) << fleet.scheduler.stop_reason().reason;
  EXPECT_GE(heard, 36) << "heartbeats are answered";
  EXPECT_EQ(fleet.scheduler.progress().workers_live, 1u);
  fleet.Pass(4);
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kIo);
  EXPECT_EQ(fleet.scheduler.stop_reason().reason,
            "the scheduler's state: run/scheduler.state: No space left on device (3 attempts)");
}

TEST(State, AFailedWriteIsRetried) {
  FakeFleet fleet(LogJob(1, 1));
  fleet.rows[0] = 300;
  fleet.AddAll();
  fleet.store.fail_state = true;
  fleet.Work(*fleet.workers[0]);
  fleet.Pass(5);
  EXPECT_TRUE(fleet.workers[0]->leases.empty());
  fleet.store.fail_state = false;
  fleet.Pass(6);
  EXPECT_FALSE(fleet.workers[0]->leases.empty());
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(std::ranges::count(fleet.notes, "the scheduler's state: run/scheduler.state: No space left on device"), 1);
}

// The thread that sends heartbeats never waits for a disk.
TEST(State, ADiskThatStallsForManyLeasesDoesNotEndTheRun) {
  FakeFleet fleet(LogJob(2, 2));
  fleet.rows[0] = 300;
  fleet.AddAll();
  fleet.store.stalls = true;
  int heard = 0;
  fleet.on_send = [&](const Outgoing& outgoing) {
    EXPECT_FALSE(TellsOfState(outgoing.message.body));
    heard += std::holds_alternative<HeartbeatAck>(outgoing.message.body);
  };
  for (auto& worker : fleet.workers) fleet.Work(*worker);
  EXPECT_EQ(fleet.store.under_way.size(), 1u);
  fleet.Pass(4 * fleet.job.fleet.lease_seconds);
  EXPECT_FALSE(fleet.scheduler.stopping()) << fleet.scheduler.stop_reason().reason;
  EXPECT_GE(heard, 4 * 40);
  EXPECT_EQ(fleet.store.under_way.size(), 1u) << "one write at a time";
  EXPECT_TRUE(std::ranges::any_of(fleet.notes, [](const std::string& note) {
    return note.starts_with("writing the scheduler's state has taken ");
  }));
  fleet.on_send = {};
  fleet.store.stalls = false;
  fleet.Pass(0.5);
  EXPECT_FALSE(fleet.workers[0]->leases.empty());
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.scheduler.progress().samples, 300u);
  EXPECT_EQ(fleet.scheduler.progress().workers_died, 0u);
}

TEST(State, AStalledManifestDoesNotEndTheRun) {
  for (const Durability durability : {Durability::kCheckpoint, Durability::kLog}) {
    Job job = LogJob(2, 2);
    job.storage.durability = durability;
    job.consistency.mode = ConsistencyMode::kAsp;
    FakeFleet fleet(job);
    fleet.rows[0] = 3000;
    fleet.AddAll();
    for (int i = 0; i < 10; ++i) fleet.Step();
    fleet.store.stalls_at_manifest = true;
    fleet.AskForCheckpoint(7);
    const auto is_manifest = [](const auto& write) { return write.first.what == StoreWritten::What::kManifest; };
    for (int i = 0; i < 100 && !std::ranges::any_of(fleet.store.under_way, is_manifest); ++i) fleet.Step();
    ASSERT_TRUE(std::ranges::any_of(fleet.store.under_way, is_manifest));
    fleet.Pass(3 * fleet.job.fleet.lease_seconds);
    EXPECT_TRUE(fleet.AskForCheckpoint(7).empty());
    EXPECT_FALSE(fleet.scheduler.stopping());
    EXPECT_NE(fleet.scheduler.view().checkpoint.id, CheckpointId(0));
    fleet.store.stalls_at_manifest = false;
    fleet.Pass(1);
    const std::vector<CheckpointRequest> told = fleet.AskForCheckpoint(7);
    ASSERT_FALSE(told.empty());  // when it was complete, and as the answer to a repeated request
    EXPECT_TRUE(fleet.store.manifests.contains(told[0].directory));
    ASSERT_TRUE(fleet.RunToEnd());
    EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  }
}

// The disk is slow, and the state changes faster than it is written. Messages are sent after the write that they wait
// for.
TEST(State, MessagesAreSentAfterTheirWriteEvenIfTheStateHasChangedSince) {
  FakeFleet fleet(LogJob(2, 2));
  fleet.rows[0] = 300;
  fleet.AddAll();
  fleet.store.stalls = true;
  fleet.Work(*fleet.workers[0]);  // its lease is being written
  fleet.Work(*fleet.workers[1]);  // and this one is not yet
  ASSERT_EQ(fleet.store.under_way.size(), 1u);
  fleet.store.stalls = false;
  const auto first = fleet.store.TakeWritten();
  fleet.store.stalls = true;
  ASSERT_EQ(first.size(), 1u);
  Outbox out;
  fleet.scheduler.OnWritten(first[0], fleet.now, &out);
  const auto replies_to = [&out](const FakeWorker& worker) {
    return std::ranges::count_if(out, [&](const Outgoing& outgoing) {
      return outgoing.to == worker.peer && std::holds_alternative<LeaseReply>(outgoing.message.body);
    });
  };
  EXPECT_EQ(replies_to(*fleet.workers[0]), 1);
  EXPECT_EQ(replies_to(*fleet.workers[1]), 0);
  EXPECT_EQ(fleet.store.under_way.size(), 1u) << "the next";
}

// The manifest is on disk, but the state is not: a restart from the old state would remove the checkpoint.
TEST(State, ACheckpointIsReportedOnceTheStateHasIt) {
  Job job = LogJob(1, 1);
  FakeFleet fleet(job);
  fleet.rows[0] = 3000;
  fleet.AddAll();
  for (int i = 0; i < 20; ++i) fleet.Step();
  bool told = false;
  fleet.on_send = [&](const Outgoing& outgoing) {
    const auto* answer = std::get_if<CheckpointRequest>(&outgoing.message.body);
    if (answer == nullptr || answer->directory.empty()) return;
    told = true;
    EXPECT_EQ(fleet.store.state->whole_directory, answer->directory);
  };
  fleet.AskForCheckpoint(7);
  for (int i = 0; i < 100 && !told; ++i) fleet.Step();
  EXPECT_TRUE(told);
}

// The write of a manifest ends after the run has ended: no answer names the checkpoint, and its directory is removed.
TEST(State, ARunMayEndWhileAManifestIsWritten) {
  Job job = Durable(1, 1);
  FakeFleet fleet(job);
  fleet.rows[0] = 3000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.store.stalls = true;
  fleet.RequestCheckpoint();
  for (int i = 0; i < 100 && fleet.store.under_way.empty(); ++i) fleet.Step();
  ASSERT_EQ(fleet.store.under_way.size(), 1u);
  fleet.RequestStop();
  fleet.RequestStop();  // without waiting
  fleet.Pass(3);
  ASSERT_TRUE(fleet.scheduler.stopped());
  EXPECT_EQ(fleet.store.removed, std::vector<std::string>{"run/checkpoints/ckpt-1"});
  fleet.store.stalls = false;
  fleet.Pass(1);
  EXPECT_EQ(fleet.scheduler.progress().last_checkpoint, "");
}

}  // namespace
}  // namespace tarn::scheduler

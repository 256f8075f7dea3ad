// Shows what the scheduler of a run with a log keeps on disk (rules G1 to G5): before it is told to anybody; that no
// damaged state is gone on from; and that a fleet that ended with all of its processes goes on where it was.
#include "scheduler/state/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/unit/core/codec/old_seal.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

Job LogJob(std::uint32_t shards, std::uint32_t workers) {
  Job job = SmallJob(shards, workers);
  job.storage.durability = Durability::kLog;
  job.storage.checkpoint_final = false;
  job.storage.checkpoint_seconds = 0;
  return job;
}

SchedulerState SomeState() {
  SchedulerState state;
  state.run = 99;
  state.progress.job_text = "[job]\n";
  state.progress.partition_bits = 1;
  state.progress.next_incarnation = Incarnation(7);
  state.progress.data.rows[0] = 100;
  state.progress.data.split_rows = 50;
  state.progress.data.trained = {50, 10};
  state.version = ViewVersion(12);
  state.epoch = Epoch(2);
  state.owners = {ShardId(0), ShardId(1)};
  state.workers = {{WorkerRank(1), Incarnation(5), WorkerState::kEnded, Clock(3), Clock(8)}};
  state.proposal = 4;
  state.largest_end = Clock(8);
  state.last_lease = LeaseId(3);
  state.leases = {{LeaseId(3), Incarnation(6), 1, true}};
  state.begun = true;
  state.best_wanted = true;
  state.whole = CheckpointId(2);
  state.whole_directory = "run/checkpoints/ckpt-2";
  state.whole_files = 1234;
  state.pending_directory = "run/checkpoints/ckpt-3";
  state.kept = {"run/checkpoints/ckpt-1", "run/checkpoints/ckpt-2"};
  state.outdated = {"run/checkpoints/ckpt-4"};
  state.logged = {LogSequence(10), LogSequence(20)};
  return state;
}

TEST(State, ComesBackFromItsBytes) {
  const SchedulerState state = SomeState();
  const auto again = DecodeState(EncodeState(state), "scheduler.state");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(EncodeState(*again), EncodeState(state));
  EXPECT_EQ(again->leases, state.leases);
  EXPECT_EQ(again->logged, state.logged);
  EXPECT_EQ(again->kept, state.kept);
  EXPECT_EQ(again->outdated, state.outdated);
  EXPECT_EQ(again->whole_files, 1234u);
  EXPECT_EQ(again->workers[0].end, Clock(8));
}

TEST(State, EveryDamagedByteIsRefused) {
  const std::string bytes = EncodeState(SomeState());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    const auto state = DecodeState(damaged, "run/scheduler.state");
    ASSERT_FALSE(state.has_value()) << "byte " << i;
    EXPECT_TRUE(state.error().message.starts_with("run/scheduler.state: "));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(DecodeState(std::string_view(bytes).substr(0, size), "run/scheduler.state").has_value());
}

TEST(State, NoDamagedByteOfTheEnvelopeIsReadInAnyVersion) {
  const std::string bytes = EncodeState(SomeState()), before = SealedBefore(bytes, 2);
  const auto old = DecodeState(before, "scheduler.state");
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_EQ(EncodeState(*old), bytes);
  for (const std::string& good : {before, bytes})
    ForEveryDamagedHeader(good, [](const std::string& damaged, std::size_t at) {
      EXPECT_FALSE(DecodeState(damaged, "s")) << "byte " << at << ": " << int(damaged[at]);
    });
}

TEST(State, NamesNothingToRemoveButCheckpoints) {
  for (const char* name : {"..", ".", "", "run/checkpoints", "run/checkpoints/ckpt-", "run/checkpoints/ckpt-0"}) {
    SchedulerState state = SomeState();
    state.kept.push_back(name);
    EXPECT_FALSE(DecodeState(EncodeState(state), "scheduler.state")) << name;
    state = SomeState();
    state.outdated.push_back(name);
    EXPECT_FALSE(DecodeState(EncodeState(state), "scheduler.state")) << name;
    state = SomeState();
    state.pending_directory = name;
    EXPECT_EQ(DecodeState(EncodeState(state), "scheduler.state").has_value(), *name == 0) << name;
  }
}

TEST(State, ANewerFormatIsNamed) {
  std::string bytes = EncodeState(SomeState());
  bytes[8] = 9;
  const auto state = DecodeState(bytes, "run/scheduler.state");
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(state.error().message, "run/scheduler.state: format version 9, expected 2 to 3: a newer tarn wrote it");
}

TEST(State, IsWrittenBeforeItIsTold) {
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

// Messages that come together: one changes the view, one has it sent, and one ends the run.
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
    fleet.scheduler.Hear(from, std::move(message), fleet.now);
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

// Says in which messages nodes hear of what the state holds.
bool TellsOfState(const Body& body) {
  return std::holds_alternative<LeaseReply>(body) || std::holds_alternative<ViewUpdate>(body) ||
         std::holds_alternative<Welcome>(body);
}

TEST(State, WhatCannotBeWrittenIsNotToldAndEndsTheRunAtTheThirdTry) {
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
            "the scheduler's state: run/scheduler.state: No space left on device (3 tries)");
}

TEST(State, AFileThatFailedIsFollowedByAnother) {
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

// The thread that renews leases never waits for a disk (DESIGN.md, 3).
TEST(State, ADiskThatStallsForManyLeasesEndsNothing) {
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
    return note.starts_with("the disk of the scheduler's state has not answered for ");
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

TEST(State, AManifestThatStallsHoldsUpNobody) {
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
    ASSERT_FALSE(told.empty());  // when it was whole, and on being asked again
    EXPECT_TRUE(fleet.store.manifests.contains(told[0].directory));
    ASSERT_TRUE(fleet.RunToEnd());
    EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  }
}

// A slow disk, and a state that changes faster than it is written: what waits for a write leaves behind it.
TEST(State, WhatWaitedForAWriteLeavesThoughTheStateHasChangedSince) {
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

// Behind a manifest that is on disk the state is not yet: a restart from it would remove the checkpoint.
TEST(State, ACheckpointIsToldOfOnceTheStateKnowsIt) {
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

// A manifest that ends to be written behind the end of the run: nobody names it, and its directory goes behind it.
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

// Everything ends after so many batches; a new fleet goes on from the state and what the shards' logs hold.
class Restart {
 public:
  Restart(const Job& job, int batches, std::uint64_t rows, std::uint64_t valid = 0) : before(job) {
    before.rows[0] = rows;
    before.rows[1] = valid;
    before.AddAll();
    for (int i = 0; i < batches; ++i)
      for (auto& worker : before.workers) before.Work(*worker);
    before.Pass(0.6);  // heartbeats tell how far it is
  }
  FakeFleet& Shards() {
    after.emplace(before.job, nullptr, &before.store.state.value());
    std::copy(std::begin(before.rows), std::end(before.rows), after->rows);
    for (std::uint32_t i = 0; i < before.shards.size(); ++i) {
      FakeShard& shard = after->AddShard(i);
      shard.ticks = before.shards[i]->ticks;
      shard.positions = before.shards[i]->positions;
    }
    return *after;
  }
  FakeFleet& Again() {
    Shards();
    for (std::uint32_t i = 0; i < before.workers.size(); ++i) after->AddWorker(i);
    return *after;
  }
  FakeFleet before;
  std::optional<FakeFleet> after;
};

TEST(State, AFleetGoesOnWhereItWas) {
  for (const ConsistencyMode mode : {ConsistencyMode::kBsp, ConsistencyMode::kAsp}) {
    for (int batches = 2; batches < 30; batches += 3) {
      Job job = LogJob(2, 2);
      job.consistency.mode = mode;
      job.consistency.apply = mode == ConsistencyMode::kBsp ? ApplyMode::kAggregated : ApplyMode::kImmediate;
      Restart restart(job, batches, 300);
      const std::uint64_t samples = restart.before.scheduler.progress().samples;
      FakeFleet& fleet = restart.Again();
      EXPECT_TRUE(fleet.shards[0]->log.recover);
      EXPECT_EQ(fleet.shards[0]->log.run, 17u);
      EXPECT_EQ(fleet.shards[0]->log.from, restart.before.store.state->whole);
      fleet.Pass(2);
      EXPECT_EQ(fleet.scheduler.progress().samples, samples) << batches;
      for (const auto& worker : fleet.workers) {
        EXPECT_GT(worker->incarnation, restart.before.workers[1]->incarnation);
        if (mode == ConsistencyMode::kAsp) continue;
        EXPECT_EQ(worker->start, restart.before.workers[0]->clock) << "both had the same clock";
      }
      ASSERT_TRUE(fleet.RunToEnd());
      EXPECT_EQ(fleet.scheduler.progress().samples, 300u);
      EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk) << fleet.scheduler.stop_reason().reason;
      EXPECT_EQ(fleet.scheduler.progress().workers_died, 2u);
    }
  }
}

// Rule K10: logs hold what was sent since the last checkpoint, so what its blobs hold would count twice.
TEST(State, NobodyGoesOnFromABlobBehindACrash) {
  Restart restart(LogJob(2, 2), 6, 300);
  restart.before.store.state->progress.blobs = {{WorkerRank(0), Incarnation(3), {"1-worker-0-3.blob", 50, 1}},
                                                {WorkerRank(1), Incarnation(4), {"1-worker-1-4.blob", 50, 1}}};
  FakeFleet& fleet = restart.Shards();
  int welcomes = 0;
  fleet.on_send = [&](const Outgoing& outgoing) {
    const auto* welcome = std::get_if<Welcome>(&outgoing.message.body);
    if (welcome == nullptr) return;
    ++welcomes;
    EXPECT_EQ(welcome->blob_bytes, 0u);
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) fleet.AddWorker(rank);
  fleet.Pass(2);
  EXPECT_GE(welcomes, 2);
  ASSERT_TRUE(fleet.RunToEnd());
}

// Rule G5: of a state whose views are the logs', yet older than them.
TEST(State, LeasesThatItDoesNotKnowEndTheRun) {
  Restart restart(LogJob(2, 2), 6, 300);
  SchedulerState& state = restart.before.store.state.value();
  ASSERT_GT(state.last_lease, LeaseId(1));
  state.last_lease = LeaseId(1);
  std::erase_if(state.leases, [](const KeptLease& kept) { return kept.lease > LeaseId(1); });
  FakeFleet& fleet = restart.Again();
  fleet.Pass(2);
  ASSERT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kCorrupt);
  EXPECT_NE(fleet.scheduler.stop_reason().reason.find(kStateName), std::string::npos);
}

// Rule G4: one worker is a clock ahead, its last lease even reported done: both are taken back to one clock.
TEST(State, WorkersAreTakenBackToOneClock) {
  Restart restart(LogJob(2, 2), 4, 300);
  FakeWorker& ahead = *restart.before.workers[0];
  const Clock together = restart.before.workers[1]->clock;
  const DataPosition there = ahead.position;
  ASSERT_EQ(ahead.clock, together);
  restart.before.Work(ahead);
  ASSERT_EQ(ahead.clock, together + 1);
  FakeFleet& fleet = restart.Again();
  for (FakeShard* shard : {fleet.shards[0].get(), fleet.shards[1].get()})
    shard->earlier[ahead.incarnation] = {together, there};
  fleet.Pass(2);
  for (const auto& worker : fleet.workers) EXPECT_EQ(worker->start, together);
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().samples, 300u);
}

// In an evaluation no proposal asks the workers for their clocks: the verdicts must come first.
TEST(State, NoCheckpointIsOrderedBeforeTheClocksAreKnown) {
  Restart restart(LogJob(2, 2), 12, 60, 400);
  ASSERT_EQ(restart.before.scheduler.progress().phase, "validate");
  const Clock closed = restart.before.workers[0]->clock;
  FakeFleet& fleet = restart.Shards();
  for (auto& shard : fleet.shards) shard->deaf = true;
  for (std::uint32_t rank = 0; rank < 2; ++rank) fleet.AddWorker(rank);
  fleet.RequestCheckpoint();
  fleet.Pass(0.5);
  EXPECT_EQ(fleet.scheduler.view().checkpoint.id, CheckpointId(0));
  for (auto& shard : fleet.shards) shard->deaf = false;
  ASSERT_TRUE(fleet.RunToEnd());
  for (const auto& [directory, manifest] : fleet.store.manifests) EXPECT_GE(manifest.resume_clock, closed) << directory;
}

// Rule G3: a worker goes while a shard reads its log. The others wait for its next start, and all join at one clock.
TEST(State, WorkersJoinTogetherAfterARestart) {
  Restart restart(LogJob(2, 3), 4, 300);
  FakeFleet& fleet = restart.Shards();
  fleet.shards[0]->deaf = true;
  for (std::uint32_t rank = 0; rank < 3; ++rank) fleet.AddWorker(rank);
  fleet.Pass(0.5);
  fleet.Kill(*fleet.workers[2]);
  fleet.Pass(fleet.job.fleet.lease_seconds + 2);
  EXPECT_EQ(fleet.scheduler.progress().workers_waiting, 2u);
  fleet.shards[0]->deaf = false;
  fleet.Pass(2);
  for (const auto& worker : fleet.workers) EXPECT_EQ(worker->incarnation.value, 0u) << worker->rank.value;
  fleet.AddWorker(2);
  fleet.Pass(2);
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(fleet.Newest(rank).start, restart.before.workers[0]->clock) << rank;
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().samples, 300u);
}

// Rule G2.
TEST(State, OutdatedCheckpointsGoAlsoAtTheEndAndAfterACrash) {
  Job job = LogJob(2, 2);
  job.storage.checkpoints_kept = 1;
  FakeFleet fleet(job);
  fleet.rows[0] = 300;
  fleet.AddAll();
  std::optional<SchedulerState> last;
  fleet.on_send = [&](const Outgoing&) {
    if (fleet.store.state && !fleet.store.state->outdated.empty()) last = fleet.store.state;
  };
  for (int i = 0; i < 4; ++i) {
    fleet.RequestCheckpoint();
    for (int step = 0; step < 5; ++step)
      for (auto& worker : fleet.workers) fleet.Work(*worker);
    fleet.Pass(0.5);
  }
  ASSERT_TRUE(last.has_value());
  ASSERT_EQ(last->outdated.size(), 1u);
  EXPECT_EQ(std::count(last->kept.begin(), last->kept.end(), last->outdated[0]), 0);
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.store.manifests.size(), 2u) << "the newest and the best";

  FakeFleet again(fleet.job, nullptr, &*last);
  again.store.stalls = true;
  again.Pass(2);
  EXPECT_TRUE(again.store.removed.empty()) << "what was read may be gone with the power: the state before needs them";
  again.store.stalls = false;
  again.Pass(0.5);
  EXPECT_EQ(std::count(again.store.removed.begin(), again.store.removed.end(), last->outdated[0]), 1);
}

// Nor those of which a slow disk is not rid yet when everything ends.
TEST(State, KnowsWhatIsStillBeingRemoved) {
  Job job = LogJob(2, 2);
  job.storage.checkpoints_kept = 1;
  FakeFleet fleet(job);
  fleet.rows[0] = 3000;
  fleet.store.slow_removals = true;
  fleet.AddAll();
  const auto cut = [&] {
    fleet.RequestCheckpoint();
    for (int step = 0; step < 5; ++step)
      for (auto& worker : fleet.workers) fleet.Work(*worker);
    fleet.Pass(0.5);
  };
  for (int i = 0; i < 40 && fleet.store.removing.empty(); ++i) cut();
  const std::vector<std::string> slow = fleet.store.removing;
  ASSERT_FALSE(slow.empty());
  cut();
  const std::vector<std::string>& outdated = fleet.store.state->outdated;
  for (const std::string& directory : slow) EXPECT_EQ(std::ranges::count(outdated, directory), 1) << directory;
}

TEST(State, OutdatedCheckpointsGoWhereTheRunEndsWithTheNewest) {
  Job job = LogJob(2, 2);
  job.storage.checkpoints_kept = 1;
  FakeFleet fleet(job);
  fleet.rows[0] = 3000;
  fleet.AddAll();
  const auto step_until = [&fleet](auto done) {
    for (int i = 0; i < 200 && !done(); ++i) {
      for (auto& worker : fleet.workers) fleet.Work(*worker);
      fleet.Pass(0.1);
    }
    return done();
  };
  ASSERT_TRUE(step_until([&] { return fleet.workers[0]->clock >= Clock(3); }));
  fleet.RequestCheckpoint();
  ASSERT_TRUE(step_until([&] { return fleet.store.manifests.size() == 1; }));
  fleet.RequestStop();
  ASSERT_TRUE(step_until([&] { return fleet.scheduler.stopped(); }));
  EXPECT_FALSE(fleet.store.state.has_value());
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_EQ(fleet.store.removed.size(), 1u);
}

TEST(State, BeforeAnyLogHasBegunTheRunBeginsAnew) {
  FakeFleet fleet(LogJob(2, 1));
  fleet.AddShard(0);
  EXPECT_FALSE(fleet.store.state.value().begun);
  fleet.AddShard(1).deaf = true;
  fleet.AddWorker(0);
  fleet.Pass(1);
  EXPECT_FALSE(fleet.store.state.value().begun);
  EXPECT_EQ(fleet.workers[0]->incarnation.value, 0u);
}

}  // namespace
}  // namespace tarn::scheduler

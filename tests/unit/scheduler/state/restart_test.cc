// Shows that a fleet whose processes have all ended continues where it was (rules G2 to G5).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "scheduler/state/state.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

// Ends all processes after some batches. A new fleet continues from the state and from what the shards' logs hold.
class Restart {
 public:
  Restart(const Job& job, int batches, std::uint64_t rows, std::uint64_t valid = 0) : before(job) {
    before.rows[0] = rows;
    before.rows[1] = valid;
    before.AddAll();
    for (int i = 0; i < batches; ++i)
      for (auto& worker : before.workers) before.Work(*worker);
    before.Pass(0.6);  // heartbeats report its progress
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

TEST(State, AFleetContinuesWhereItWas) {
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

// Rule K10: the logs hold all pushes since the last checkpoint, so residuals from its blobs would be pushed twice.
TEST(State, WorkersDoNotResumeFromBlobsAfterACrash) {
  Restart restart(LogJob(2, 2), 6, 300);
  restart.before.store.state->progress.blobs = {{WorkerRank(0), Incarnation(3), {"1-worker-0-3.blob", 50, 1}},
                                                {WorkerRank(1), Incarnation(4), {"1-worker-1-4.blob", 50, 1}}};
  FakeFleet& fleet = restart.Shards();
  int welcomes = 0;
  fleet.on_send = [&](const Outgoing& outgoing) {
    const auto* welcome = std::get_if<Welcome>(&outgoing.message.body);
    if (welcome == nullptr) return;
    ++welcomes;
    EXPECT_TRUE(welcome->blobs.empty());
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) fleet.AddWorker(rank);
  fleet.Pass(2);
  EXPECT_GE(welcomes, 2);
  ASSERT_TRUE(fleet.RunToEnd());
}

// Rule G5: the state has the views of the logs, but is older than they are.
TEST(State, UnknownLeasesEndTheRun) {
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

// Rule G4: one worker is a clock ahead and has reported its last lease done. Both are reset to one clock.
TEST(State, WorkersAreResetToOneClock) {
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

// Rule G3: a worker dies while a shard reads its log. The others wait for its next start, and all join at one clock.
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

TEST(State, AWorkerThatDoesNotComeBackIsNotWaitedForWithoutEnd) {
  Restart restart(LogJob(2, 3), 4, 300);
  FakeFleet& fleet = restart.Shards();
  fleet.shards[0]->deaf = true;
  for (std::uint32_t rank = 0; rank < 3; ++rank) fleet.AddWorker(rank);
  fleet.Pass(0.5);
  fleet.Kill(*fleet.workers[2]);
  fleet.Pass(fleet.job.fleet.lease_seconds + 2);
  fleet.shards[0]->deaf = false;
  fleet.Pass(20 * fleet.job.fleet.lease_seconds - 2);
  EXPECT_EQ(fleet.scheduler.progress().workers_live, 0u);
  fleet.Pass(4);
  EXPECT_EQ(fleet.scheduler.progress().workers_live, 2u);
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().samples, 300u);
}

// Rule G2.
TEST(State, OutdatedCheckpointsAreRemovedAtTheEndAndAfterACrash) {
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

// A slow disk is still removing checkpoints when all processes end; the state must list them.
TEST(State, TheStateListsCheckpointsThatAreStillBeingRemoved) {
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

TEST(State, OutdatedCheckpointsAreRemovedIfTheRunEndsWithTheNewest) {
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

TEST(State, BeforeEveryShardHasALogTheStateIsNotBegun) {
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

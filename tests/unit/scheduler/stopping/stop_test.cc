// Shows clean stops (rules S1, S2, K11): with and without a checkpoint, and of fleets that workers have deserted.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

TEST(Stop, WithoutCheckpointsTheFleetIsStoppedAtOnce) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.rows[0] = 300;
  fleet.AddAll();
  Outbox out;
  fleet.scheduler.RequestStop(fleet.now, &out);
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  EXPECT_EQ(out.size(), 2u);
  for (const Outgoing& outgoing : out) EXPECT_TRUE(std::holds_alternative<Shutdown>(outgoing.message.body));
}

TEST(Stop, ShutdownIsRepeatedUntilItIsConfirmed) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  Outbox lost;
  fleet.scheduler.RequestStop(fleet.now, &lost);
  EXPECT_FALSE(fleet.scheduler.stopped());
  fleet.Pass(2);
  EXPECT_TRUE(fleet.workers[0]->shutdown);
  EXPECT_TRUE(fleet.shards[0]->shutdown);
  EXPECT_TRUE(fleet.scheduler.stopped());
}

TEST(Stop, ASilentFleetIsNotWaitedForLong) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  fleet.workers[0]->silent = fleet.shards[0]->silent = true;
  Outbox lost;
  fleet.scheduler.RequestStop(fleet.now, &lost);
  fleet.Pass(3);
  EXPECT_TRUE(fleet.scheduler.stopped());
}

TEST(Stop, AStopBeforeTheFleetIsCompleteEndsTheRun) {
  FakeFleet fleet(SmallJob(1, 1));
  Outbox out;
  fleet.scheduler.RequestStop(fleet.now, &out);
  fleet.Pass(1);
  EXPECT_TRUE(fleet.scheduler.stopped());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
}

TEST(Stop, AToolMayRequestAStop) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  Message message;
  message.job = Fingerprint(fleet.job);
  message.sender = {Role::kScheduler, 0, Incarnation(0)};
  message.body = Shutdown{};
  fleet.SendFrom(Peer(kFirstAcceptedPeer + 99), message);
  EXPECT_TRUE(fleet.scheduler.stopping());
}

TEST(Stop, EndsAtOnceWhileWorkersStillReadTheirData) {
  FakeFleet fleet(Durable(2, 2));
  fleet.AddAll();
  fleet.Pass(3);
  ASSERT_EQ(fleet.scheduler.progress().phase, "train");
  fleet.RequestStop();
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  fleet.Pass(1);
  EXPECT_TRUE(fleet.scheduler.stopped());
  EXPECT_TRUE(fleet.store.manifests.empty());
}

TEST(Stop, AStopCutsTheWorkOfClientsWithoutLeases) {
  FakeFleet fleet(Durable(1, 1));
  fleet.AddAll();
  fleet.workers[0]->clock = Clock(1);  // ticked, though nothing was granted
  fleet.Pass(1);
  fleet.RequestStop();
  EXPECT_FALSE(fleet.scheduler.stopping());
}

TEST(Deserted, AFleetWithoutWorkersEndsAfterTwentyLeases) {
  for (Durability durability : {Durability::kCheckpoint, Durability::kNone}) {
    Job job = Durable(2, 2);
    job.storage.durability = durability;
    FakeFleet fleet(job);
    fleet.rows[0] = 10000;
    fleet.AddAll();
    for (int i = 0; i < 12; ++i) fleet.Step();
    for (auto& worker : fleet.workers) fleet.Kill(*worker);
    fleet.Pass(6);  // both are dead
    ASSERT_EQ(fleet.scheduler.progress().workers_live, 0u);
    fleet.Pass(20 * 5 - 2);
    EXPECT_FALSE(fleet.scheduler.stopping());
    fleet.Pass(5);
    EXPECT_TRUE(fleet.scheduler.stopping());
    EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kUnavailable);
    EXPECT_EQ(fleet.scheduler.progress().phase, "failed");
    EXPECT_EQ(fleet.store.manifests.size(), durability == Durability::kCheckpoint ? 1u : 0u);
  }
}

// Without workers no shard reaches the clock of the order.
TEST(Deserted, ACheckpointWhoseClockNoWorkerReachesIsCutWhereTheyEnded) {
  FakeFleet fleet(Durable(2, 2));
  fleet.rows[0] = 10000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.RequestCheckpoint();
  for (int i = 0; i < 20 && fleet.scheduler.view().checkpoint.id.value == 0; ++i) fleet.Pass(0.1);
  const Clock ordered = fleet.scheduler.view().checkpoint.clock;
  ASSERT_GT(ordered, fleet.workers[0]->clock);
  for (auto& worker : fleet.workers) fleet.Kill(*worker);
  fleet.Pass(20);
  ASSERT_EQ(fleet.scheduler.progress().workers_live, 0u);
  ASSERT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_LT(fleet.store.manifests.begin()->second.resume_clock, ordered);
}

TEST(Deserted, AWorkerThatRejoinsInTimeKeepsTheRun) {
  FakeFleet fleet(Durable(1, 1));
  fleet.rows[0] = 100;
  fleet.AddAll();
  for (int i = 0; i < 3; ++i) fleet.Step();
  fleet.Kill(*fleet.workers[0]);
  fleet.Pass(90);
  fleet.AddWorker(0);
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
}

TEST(Checkpoint, AStopWaitsForWorkersWithLongClocks) {
  FakeFleet fleet(Durable(1, 2));
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.RequestStop();
  for (int i = 0; i < 40 && !fleet.scheduler.stopped(); ++i) {
    fleet.Pass(20);
    fleet.Step();
  }
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
}

TEST(Checkpoint, AStopWritesACheckpointAndASecondStopDoesNotWait) {
  FakeFleet fleet(Durable(1, 2));
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.RequestStop();
  for (int i = 0; i < 100 && !fleet.scheduler.stopped(); ++i) fleet.Step();
  EXPECT_TRUE(fleet.scheduler.stopped());
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);

  FakeFleet hasty(Durable(1, 2));
  hasty.rows[0] = 1000;
  hasty.AddAll();
  for (int i = 0; i < 5; ++i) hasty.Step();
  hasty.shards[0]->writes_parts = false;
  hasty.RequestStop();
  EXPECT_FALSE(hasty.scheduler.stopping());
  hasty.RequestStop();
  EXPECT_TRUE(hasty.scheduler.stopping());
  EXPECT_TRUE(hasty.store.manifests.empty());
}

// All is trained and in the last checkpoint, so nothing is missing.
TEST(Stop, AProgramThatWorksOnAfterTheLastCheckpointIsNotWaitedFor) {
  FakeFleet fleet(Durable(1, 1));
  fleet.rows[0] = 50;
  fleet.AddAll();
  fleet.workers[0]->stays = true;
  for (int i = 0; i < 200 && !fleet.workers[0]->finished; ++i) fleet.Step();
  ASSERT_TRUE(fleet.workers[0]->finished);
  fleet.Pass(10);
  ASSERT_FALSE(fleet.scheduler.stopping());
  fleet.RequestStop();
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.scheduler.progress().phase, "done");
}

// Rule K11: if shards cut at once, a stop waits for the current batches, and no worker begins another.
TEST(Stop, BatchesOfAStoppedRunAreNotTrainedAgain) {
  for (const ConsistencyMode mode : {ConsistencyMode::kSsp, ConsistencyMode::kAsp})
    for (int steps = 4; steps < 60; steps += 5) {
      Job job = Durable(2, 3);
      job.consistency = {mode, mode == ConsistencyMode::kSsp ? 3u : 0u, ApplyMode::kImmediate};
      FakeFleet fleet(job);
      fleet.rows[0] = 605;
      fleet.AddAll();
      for (int i = 0; i < steps; ++i) fleet.Step();
      if (fleet.scheduler.progress().phase != "train") break;
      fleet.shards[0]->writes_parts = false;  // its part takes a while
      fleet.RequestStop();
      for (int i = 0; i < 20; ++i) fleet.Step();
      EXPECT_FALSE(fleet.scheduler.stopping());
      fleet.shards[0]->writes_parts = true;
      for (int i = 0; i < 100 && !fleet.scheduler.stopped(); ++i) fleet.Step();
      ASSERT_EQ(fleet.scheduler.progress().phase, "stopped");
      ASSERT_EQ(fleet.store.manifests.size(), 1u);
      const Manifest manifest = fleet.store.manifests.begin()->second;
      EXPECT_EQ(manifest.batches_behind, 0u);

      FakeFleet resumed(job, &manifest);
      resumed.rows[0] = 605;
      resumed.AddAll();
      ASSERT_TRUE(resumed.RunToEnd());
      EXPECT_EQ(manifest.samples, fleet.scheduler.progress().samples) << "trained behind the noted positions";
      auto times = resumed.trained;
      for (std::size_t i = 0; i < manifest.data.trained.size(); ++i)
        for (std::uint64_t row = 0; row < manifest.data.trained[i]; ++row)
          ++times[{manifest.data.epoch, i * manifest.data.split_rows + row}];
      ASSERT_EQ(times.size(), 605u);
      for (const auto& [row, count] : times) ASSERT_EQ(count, 1) << "row " << row.second << ", " << steps;
    }
}

// The stop does not wait longer than a lease for a worker to finish its batch; batches trained meanwhile are counted.
TEST(Stop, AStopWaitsAtMostALeaseForAWorkerThatDoesNotDrain) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.workers[1]->drains = false;
  fleet.RequestStop();
  fleet.Pass(job.fleet.lease_seconds - 1.5);
  EXPECT_TRUE(fleet.store.manifests.empty());
  fleet.Pass(3);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  EXPECT_EQ(
      std::ranges::count_if(
          fleet.notes, [](const auto& note) { return note.find("worker 1 has not finished") != std::string::npos; }),
      1);
}

// A worker died before the stop, and a shard that was silent for most of a lease delays the verdict. Without the
// verdict the checkpoint would not count what the dead worker has trained.
TEST(Stop, AStopWaitsForTheVerdictOnADeadWorker) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  const double lease = job.fleet.lease_seconds;
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.Kill(*fleet.workers[1]);
  fleet.Pass(lease - 1);
  fleet.RequestStop();
  fleet.Pass(0.7);
  fleet.shards[0]->silent = true;
  fleet.Pass(lease - 0.5);  // a lease after the stop, and less than one of the shard's silence
  EXPECT_EQ(fleet.scheduler.view().checkpoint.id.value, 0u);
  fleet.shards[0]->silent = false;
  for (int i = 0; i < 100 && !fleet.scheduler.stopped(); ++i) fleet.Step();
  ASSERT_EQ(fleet.scheduler.progress().phase, "stopped");
  ASSERT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_EQ(fleet.store.manifests.begin()->second.samples, fleet.scheduler.progress().samples);
}

}  // namespace
}  // namespace tarn::scheduler

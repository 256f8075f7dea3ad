// Shows that the scheduler names the nodes that the fleet waits for, every ten seconds.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

std::vector<std::string> WaitsOf(FakeFleet* fleet) {
  std::vector<std::string> waits;
  for (std::string& note : fleet->notes)
    if (note.starts_with("waiting for ")) waits.push_back(std::move(note));
  fleet->notes.clear();
  return waits;
}

using Texts = std::vector<std::string>;

// Lets all workers join and gives them a table and data.
void Train(FakeFleet* fleet) {
  fleet->rows[0] = 1000;
  fleet->AddAll();
  TableSpec table;
  table.name = "t";
  fleet->Send(*fleet->workers[0], CreateTable{table, ErrorCode::kOk, {}});
  fleet->Pass(2);
}

TEST(Waits, NodesThatHaveNotJoinedAreNamed) {
  Job job = SmallJob(2, 12);
  job.fleet.servers = 2;
  job.fleet.lease_seconds = 60;
  FakeFleet fleet(job);
  for (std::uint32_t shard : {0u, 1u, 2u}) fleet.AddShard(shard);
  fleet.AddWorker(3);
  fleet.Pass(9);
  EXPECT_EQ(WaitsOf(&fleet), Texts{});
  fleet.Pass(12);
  const std::string all = "waiting for server 1 and workers 0, 1, 2, 4, 5, 6, 7, 8 and 3 more to join";
  EXPECT_EQ(WaitsOf(&fleet), (Texts{all, all}));
  fleet.AddShard(3);
  for (std::uint32_t rank = 0; rank < 11; ++rank)
    if (rank != 3) fleet.AddWorker(rank);
  fleet.Pass(10);
  EXPECT_EQ(WaitsOf(&fleet), Texts{"waiting for worker 11 to join"});
  fleet.AddWorker(11);
  fleet.Pass(30);
  EXPECT_EQ(WaitsOf(&fleet), Texts{});
}

TEST(Waits, ASilentNodeIsNamedUntilItIsDeclaredDead) {
  Job job = SmallJob(1, 2);
  job.fleet.lease_seconds = 30;
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  fleet.Pass(30);
  EXPECT_EQ(WaitsOf(&fleet), Texts{});
  fleet.Kill(*fleet.workers[1]);
  fleet.Pass(29);
  EXPECT_EQ(WaitsOf(&fleet),
            (Texts{"waiting for worker 1, silent for 10 s; a node that is silent for 30 s is declared dead",
                   "waiting for worker 1, silent for 20 s; a node that is silent for 30 s is declared dead"}));
  fleet.Pass(2);
  fleet.notes.clear();
  fleet.Pass(30);
  EXPECT_EQ(WaitsOf(&fleet), Texts{});
}

TEST(Waits, AShardThatLoadsItsRowsIsNotCalledLost) {
  Job job = SmallJob(1, 1);
  job.fleet.lease_seconds = 30;
  FakeFleet fleet(job);
  fleet.AddShard(0).silent = true;
  fleet.AddWorker(0);
  fleet.Pass(11);
  EXPECT_EQ(WaitsOf(&fleet), Texts{"waiting for shard 0, which has been loading rows for 10 s"});
}

// The worker sends heartbeats, so it is alive; without its ticks no other worker can continue.
TEST(Waits, AWorkerThatDoesNotTickIsNamedWithClockAndAge) {
  for (const ConsistencyMode mode : {ConsistencyMode::kBsp, ConsistencyMode::kAsp}) {
    Job job = SmallJob(1, 2);
    job.consistency.mode = mode;
    job.fleet.lease_seconds = 60;
    FakeFleet fleet(job);
    Train(&fleet);
    fleet.workers[0]->clock = Clock(1);  // has ticked, and waits for the other
    fleet.Pass(30);
    const Texts waits = WaitsOf(&fleet);
    if (mode == ConsistencyMode::kAsp) {
      EXPECT_EQ(waits, Texts{});
      continue;
    }
    ASSERT_EQ(waits.size(), 3u);  // once every ten seconds
    EXPECT_TRUE(waits[0].starts_with("waiting for worker 1 to tick: alive, but at clock 0 for 1")) << waits[0];
    EXPECT_NE(waits[0].find("others are at clock 1"), std::string::npos) << waits[0];
    fleet.workers[1]->clock = Clock(1);
    fleet.Pass(30);
    EXPECT_EQ(WaitsOf(&fleet), Texts{});
  }
}

// Rule C8: no worker waits for the slowest of three; the first waits for the second.
TEST(Waits, BackupWorkersAreNotNamed) {
  Job job = SmallJob(1, 3);
  job.consistency.backup_workers = 1;
  job.fleet.lease_seconds = 60;
  FakeFleet fleet(job);
  Train(&fleet);
  for (const std::size_t worker : {0, 1}) fleet.workers[worker]->clock = Clock(4);
  fleet.Pass(30);
  EXPECT_EQ(WaitsOf(&fleet), Texts{});
  fleet.workers[0]->clock = Clock(5);
  fleet.Pass(30);
  const Texts waits = WaitsOf(&fleet);
  ASSERT_FALSE(waits.empty());
  EXPECT_TRUE(waits.back().starts_with("waiting for workers 1, 2 to tick: alive, but at clock 0")) << waits.back();
}

TEST(Waits, OnlyTheWorkerThatACheckpointWaitsForIsNamed) {
  Job job = Durable(1, 2);
  job.consistency.mode = ConsistencyMode::kBsp;
  job.fleet.lease_seconds = 60;
  FakeFleet fleet(job);
  Train(&fleet);
  for (auto& worker : fleet.workers) worker->clock = Clock(1);
  fleet.Pass(2);
  fleet.RequestCheckpoint();
  fleet.workers[0]->clock = Clock(2);  // and cannot tick again before the other one
  fleet.Pass(30);
  const Texts waits = WaitsOf(&fleet);
  ASSERT_FALSE(waits.empty());
  EXPECT_TRUE(waits.back().starts_with("waiting for worker 1 to tick: alive, but at clock 1 for ")) << waits.back();
  EXPECT_NE(waits.back().find("a checkpoint waits for clock"), std::string::npos) << waits.back();
}

TEST(Waits, WorkersWithoutDataAreCountedOnce) {
  const auto warnings = [](std::uint32_t workers, std::uint64_t rows) {
    Job job = SmallJob(1, workers);
    job.train.epochs = 2;
    FakeFleet fleet(job);  // splits of 30 rows
    fleet.rows[0] = rows;
    fleet.AddAll();
    EXPECT_TRUE(fleet.RunToEnd());
    Texts found;
    for (const std::string& note : fleet.notes)
      if (note.find("get no data") != std::string::npos) found.push_back(note);
    return found;
  };
  EXPECT_EQ(
      warnings(3, 31),
      Texts{"the training set has 31 rows in 2 splits of 30 rows, for 3 workers: 1 workers get no data in epoch 1; "
            "expected fewer workers, or a smaller train.batch_rows or data.split_rows"});
  EXPECT_EQ(warnings(2, 31), Texts{});
}

}  // namespace
}  // namespace tarn::scheduler

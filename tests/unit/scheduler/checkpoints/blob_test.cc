// Shows that a checkpoint is complete only with the state of its workers (rule K9); it does not wait for dead workers,
// and each rank resumes from its own state (rule K10).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

Job WithTopK(std::uint32_t workers, ConsistencyMode mode) {
  Job job = Durable(2, workers);
  job.consistency = {.mode = mode,
                     .staleness = 0,
                     .apply = mode == ConsistencyMode::kBsp ? ApplyMode::kAggregated : ApplyMode::kImmediate};
  return job;
}

class BlobTest : public testing::Test {
 protected:
  static TableSpec Users(const Job& job) {
    TableSpec spec;
    spec.name = "users";
    spec.dim = 4;
    spec.push_codec = ValueCodec::kTopK;
    spec.consistency = job.consistency;
    return spec;
  }
  static void Begin(FakeFleet* fleet) {
    fleet->rows[0] = 1000;
    fleet->AddAll();
    for (int i = 0; i < 6; ++i) fleet->Step();
    fleet->Send(*fleet->workers[0], CreateTable{Users(fleet->job), ErrorCode::kOk, ""});
    fleet->Pass(1);
    for (int i = 0; i < 6; ++i) fleet->Step();
  }
  static void Until(FakeFleet* fleet, auto done) {
    for (int i = 0; i < 300 && !done(); ++i) fleet->Step();
  }
  static void SendBlob(FakeFleet* fleet, const FakeWorker& worker, std::uint64_t bytes) {
    CheckpointPart part;
    part.id = fleet->scheduler.view().checkpoint.id;
    part.files = {{"blob-" + std::to_string(worker.rank.value), bytes, 9}};
    fleet->Send(worker, part);
  }
};

TEST_F(BlobTest, K9ACheckpointWaitsForTheStateOfEveryWorker) {
  for (const ConsistencyMode mode : {ConsistencyMode::kBsp, ConsistencyMode::kAsp}) {
    FakeFleet fleet(WithTopK(2, mode));
    Begin(&fleet);
    fleet.RequestCheckpoint();
    Until(&fleet, [&] { return fleet.scheduler.view().checkpoint.id.value != 0; });
    EXPECT_TRUE(fleet.scheduler.view().checkpoint.blobs);
    for (int i = 0; i < 40; ++i) fleet.Step();
    EXPECT_TRUE(fleet.store.manifests.empty());
    SendBlob(&fleet, *fleet.workers[1], 50);
    fleet.Pass(1);
    EXPECT_TRUE(fleet.store.manifests.empty());
    SendBlob(&fleet, *fleet.workers[0], 40);
    fleet.Pass(1);
    ASSERT_EQ(fleet.store.manifests.size(), 1u);
    const std::vector<WorkerBlob>& blobs = fleet.store.manifests.begin()->second.blobs;
    ASSERT_EQ(blobs.size(), 2u);
    EXPECT_EQ(blobs[0].file.name, "blob-0");
    EXPECT_EQ(blobs[0].incarnation, fleet.workers[0]->incarnation);
    EXPECT_EQ(blobs[1].rank, WorkerRank(1));
    EXPECT_EQ(blobs[1].file.bytes, 50u);
  }
}

TEST_F(BlobTest, K9ACheckpointDoesNotWaitForTheStateOfADeadWorker) {
  FakeFleet fleet(WithTopK(2, ConsistencyMode::kAsp));
  Begin(&fleet);
  fleet.RequestCheckpoint();
  Until(&fleet, [&] { return fleet.scheduler.view().checkpoint.id.value != 0; });
  SendBlob(&fleet, *fleet.workers[0], 40);
  fleet.Kill(*fleet.workers[1]);
  for (int i = 0; i < 400 && fleet.store.manifests.empty(); ++i) fleet.Step();
  ASSERT_EQ(fleet.store.manifests.size(), 1u);
  const std::vector<WorkerBlob>& blobs = fleet.store.manifests.begin()->second.blobs;
  ASSERT_EQ(blobs.size(), 1u);
  EXPECT_EQ(blobs[0].rank, WorkerRank(0));
  EXPECT_TRUE(std::ranges::any_of(fleet.notes, [](const std::string& note) {
    return note.find("does not contain the state of worker 1, which has ended") != std::string::npos;
  }));
}

TEST_F(BlobTest, K9WithoutWorkerStateNoneIsRequired) {
  Job job = WithTopK(2, ConsistencyMode::kBsp);
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.RequestCheckpoint();
  Until(&fleet, [&] { return !fleet.store.manifests.empty(); });
  ASSERT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_TRUE(fleet.store.manifests.begin()->second.blobs.empty());
}

TEST_F(BlobTest, K10EachRankResumesFromItsOwnStateAndAReplacementFromNone) {
  Job job = WithTopK(2, ConsistencyMode::kBsp);
  Manifest manifest;
  manifest.job_text = ToToml(job);
  manifest.id = CheckpointId(4);
  manifest.partition_bits = job.fleet.partition_bits;
  manifest.generations = {{CheckpointId(4), Clock(5), {}, {}, 0}};
  manifest.next_incarnation = Incarnation(50);
  manifest.resume_clock = Clock(5);
  manifest.blobs = {{WorkerRank(1), Incarnation(12), {"4-worker-1-12.blob", 33, 2}}};
  FakeFleet fleet(job, &manifest);
  std::map<Incarnation, Welcome> welcomes;
  fleet.on_send = [&](const Outgoing& out) {
    if (const auto* welcome = std::get_if<Welcome>(&out.message.body)) welcomes[welcome->incarnation] = *welcome;
  };
  fleet.rows[0] = 1000;
  fleet.AddAll();
  fleet.Pass(2);
  for (const auto& worker : fleet.workers) {
    const auto& blobs = welcomes.at(worker->incarnation).blobs;
    ASSERT_EQ(blobs.size(), 1u);
    EXPECT_EQ(blobs[0].rank, 1u);
    EXPECT_EQ(blobs[0].bytes, 33u);
  }
  EXPECT_EQ(welcomes.at(fleet.workers[1]->incarnation).start_clock, Clock(5));
  const Incarnation first = fleet.workers[1]->incarnation;
  fleet.Kill(*fleet.workers[1]);
  fleet.AddWorker(1);
  Until(&fleet, [&] { return fleet.Newest(1).incarnation != Incarnation(0) && fleet.Newest(1).incarnation != first; });
  ASSERT_NE(fleet.Newest(1).incarnation, first);
  EXPECT_TRUE(welcomes.at(fleet.Newest(1).incarnation).blobs.empty());
}

// A checkpoint without a program's state would look complete, and a run that resumes from it would lose that state.
TEST_F(BlobTest, K9ACheckpointWithoutTheStateOfAProgramIsNotCompleted) {
  Job job = WithTopK(2, ConsistencyMode::kAsp);
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 6; ++i) fleet.Step();
  fleet.Send(*fleet.workers[1], Heartbeat{.keeps_state = true});
  fleet.Pass(1);
  fleet.RequestCheckpoint();
  Until(&fleet, [&] { return fleet.scheduler.view().checkpoint.id.value != 0; });
  const CheckpointId first = fleet.scheduler.view().checkpoint.id;
  EXPECT_TRUE(fleet.scheduler.view().checkpoint.blobs);
  SendBlob(&fleet, *fleet.workers[0], 40);
  fleet.Kill(*fleet.workers[1]);
  Until(&fleet, [&] { return !fleet.store.manifests.empty(); });
  ASSERT_FALSE(fleet.store.manifests.empty());
  EXPECT_GT(fleet.store.manifests.begin()->second.id, first) << "the first is void, and another one follows";
}

}  // namespace
}  // namespace tarn::scheduler

// Shows when a checkpoint is an increment (rule K7), how the chain continues when a checkpoint fails, is voided or is
// lost, and that a request for a checkpoint is answered with its directory (rule K8).
#include <gtest/gtest.h>

#include "core/limits.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

// A long run that writes checkpoints only on request.
class ChainTest : public testing::Test {
 protected:
  static Job Asking(std::uint32_t chain) {
    Job job = Durable(2, 1);
    job.storage.checkpoint_seconds = 0;
    job.storage.checkpoint_chain = chain;
    job.storage.checkpoints_kept = 100;
    return job;
  }
  void Start(const Job& job, const Manifest* resume = nullptr) {
    fleet_ = std::make_unique<FakeFleet>(job, resume);
    fleet_->rows[0] = 100'000;
    fleet_->AddAll();
    for (int i = 0; i < 5; ++i) fleet_->Step();
  }
  const Manifest* Newest() const {
    const Manifest* newest = nullptr;
    for (const auto& [directory, manifest] : fleet_->store.manifests)
      if (newest == nullptr || manifest.id > newest->id) newest = &manifest;
    return newest;
  }
  // Requests a checkpoint and waits until it is complete. Returns null if it does not become so.
  const Manifest* Cut() {
    const CheckpointId before = Newest() == nullptr ? CheckpointId(0) : Newest()->id;
    fleet_->RequestCheckpoint();
    for (int i = 0; i < 300; ++i) {
      fleet_->Step();
      if (Newest() != nullptr && Newest()->id > before) return Newest();
    }
    return nullptr;
  }
  std::vector<std::uint64_t> Chain(const Manifest* manifest) {
    std::vector<std::uint64_t> ids;
    if (manifest != nullptr)
      for (const Generation& generation : manifest->generations) ids.push_back(generation.id.value);
    return ids;
  }
  std::unique_ptr<FakeFleet> fleet_;
};

using Ids = std::vector<std::uint64_t>;

TEST_F(ChainTest, EachIsAnIncrementUntilTheChainIsLong) {
  Start(Asking(2));
  EXPECT_EQ(Chain(Cut()), (Ids{1}));
  EXPECT_EQ(Chain(Cut()), (Ids{1, 2}));
  const Manifest* third = Cut();
  EXPECT_EQ(Chain(third), (Ids{1, 2, 3}));
  EXPECT_EQ(third->generations[0].files.at(0).name, "1-shard-0");
  EXPECT_EQ(third->generations[2].files.at(1).name, "3-shard-1");
  EXPECT_EQ(third->generations[2].tables, (std::vector<CheckpointTable>{{TableId(1), 6, 2, 4, 20}}));
  EXPECT_EQ(Chain(Cut()), (Ids{4}));
  EXPECT_EQ(Chain(Cut()), (Ids{4, 5}));
}

TEST_F(ChainTest, WithoutAChainAllCheckpointsAreFull) {
  Start(Asking(0));
  EXPECT_EQ(Chain(Cut()), (Ids{1}));
  EXPECT_EQ(Chain(Cut()), (Ids{2}));
}

TEST_F(ChainTest, AFullCheckpointFollowsWhenTheIncrementsAreLargerThanTheBase) {
  Start(Asking(8));
  for (auto& shard : fleet_->shards) shard->full_bytes = 100, shard->delta_bytes = 50;
  EXPECT_EQ(Chain(Cut()), (Ids{1}));
  EXPECT_EQ(Chain(Cut()), (Ids{1, 2}));
  EXPECT_EQ(Chain(Cut()), (Ids{1, 2, 3}));  // as much as the base: not yet
  EXPECT_EQ(Chain(Cut()), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(Chain(Cut()), (Ids{5}));
}

TEST_F(ChainTest, AFailedCheckpointIsNotABase) {
  Start(Asking(8));
  EXPECT_EQ(Chain(Cut()), (Ids{1}));
  fleet_->store.fail = true;
  EXPECT_EQ(Cut(), nullptr);
  fleet_->store.fail = false;
  EXPECT_EQ(Chain(Cut()), (Ids{1, 3}));
}

TEST_F(ChainTest, AMissingBaseIsReplacedByAFullCheckpoint) {
  Start(Asking(8));
  EXPECT_EQ(Chain(Cut()), (Ids{1}));
  fleet_->shards[1]->lost_base = CheckpointId(1);
  EXPECT_EQ(Chain(Cut()), (Ids{3}));
  EXPECT_EQ(Chain(Cut()), (Ids{3, 4}));
  EXPECT_FALSE(fleet_->scheduler.stopping());
  bool told = false;
  for (const std::string& note : fleet_->notes) told |= note.find("a full one follows") != std::string::npos;
  EXPECT_TRUE(told);
}

TEST_F(ChainTest, AChainTooLongForAManifestIsFollowedByAFullCheckpoint) {
  Start(Asking(8));
  fleet_->store.generations_max = 2;
  EXPECT_EQ(Chain(Cut()), (Ids{1}));
  EXPECT_EQ(Chain(Cut()), (Ids{1, 2}));
  EXPECT_EQ(Chain(Cut()), (Ids{4}));
  EXPECT_FALSE(fleet_->scheduler.stopping());
}

TEST_F(ChainTest, TheBaseOfAnOrderIsNotRemoved) {
  Job job = Asking(8);
  job.storage.checkpoints_kept = 1;
  Start(job);
  for (int i = 0; i < 4; ++i) ASSERT_NE(Cut(), nullptr);
  for (int i = 0; i < 50; ++i) {
    const CheckpointOrder& order = fleet_->scheduler.view().checkpoint;
    ASSERT_TRUE(order.base.value == 0 || fleet_->store.manifests.contains(order.base_directory));
    if (i == 5) fleet_->RequestCheckpoint();
    fleet_->Step();
  }
  EXPECT_EQ(fleet_->store.manifests.size(), 1u);
}

TEST_F(ChainTest, AResumedRunContinuesTheChain) {
  Start(Asking(8));
  Cut();
  const Manifest manifest = *Cut();
  Start(Asking(8), &manifest);
  EXPECT_EQ(Chain(Cut()), (Ids{1, 2, 3}));
}

TEST_F(ChainTest, TheLastCheckpointHasTheHashOfAllRows) {
  fleet_ = std::make_unique<FakeFleet>(Asking(8));
  fleet_->rows[0] = 500;
  fleet_->AddAll();
  for (int i = 0; i < 5; ++i) fleet_->Step();
  EXPECT_FALSE(Cut()->state_hash);
  ASSERT_TRUE(fleet_->RunToEnd());
  EXPECT_TRUE(fleet_->scheduler.progress().has_state_hash);
  EXPECT_EQ(fleet_->scheduler.progress().state_hash, 100u + 101u);
  const Manifest* newest = Newest();
  ASSERT_NE(newest, nullptr);
  EXPECT_GT(newest->generations.size(), 1u);
  EXPECT_EQ(newest->state_hash, 100u + 101u);
}

TEST_F(ChainTest, ARequestIsAnsweredWithTheDirectoryOnceComplete) {
  Start(Asking(8));
  EXPECT_TRUE(fleet_->AskForCheckpoint(7).empty());
  std::vector<CheckpointRequest> told;
  for (int i = 0; i < 200 && told.empty(); ++i) {
    fleet_->Step();
    told = fleet_->AskForCheckpoint(7);  // repeats the same request
  }
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0].number, 7u);
  EXPECT_EQ(told[0].code, ErrorCode::kOk);
  EXPECT_EQ(told[0].directory, "run/checkpoints/ckpt-1");
  EXPECT_TRUE(fleet_->store.manifests.contains(told[0].directory));
  for (int i = 0; i < 50; ++i) fleet_->Step();
  EXPECT_EQ(fleet_->store.manifests.size(), 1u);                                     // one request, one checkpoint
  EXPECT_EQ(fleet_->AskForCheckpoint(7).at(0).directory, "run/checkpoints/ckpt-1");  // its answer was lost
}

TEST_F(ChainTest, AWorkerMayRequestACheckpoint) {
  Start(Asking(8));
  const FakeWorker& worker = *fleet_->workers[0];
  std::string directory;
  fleet_->on_send = [&](const Outgoing& sent) {
    const auto* answer = std::get_if<CheckpointRequest>(&sent.message.body);
    if (sent.to != worker.peer || answer == nullptr) return;
    EXPECT_EQ(answer->number, 9u);
    EXPECT_EQ(answer->code, ErrorCode::kOk);
    directory = answer->directory;
  };
  for (int i = 0; i < 200 && directory.empty(); ++i) {
    fleet_->Send(worker, CheckpointRequest{9, ErrorCode::kOk, {}, {}});
    fleet_->Step();
  }
  EXPECT_EQ(directory, "run/checkpoints/ckpt-1");
}

TEST_F(ChainTest, ARequestDuringACutGetsALaterCheckpoint) {
  Start(Asking(8));
  fleet_->RequestCheckpoint();
  for (int i = 0; i < 100 && fleet_->scheduler.view().checkpoint.id.value == 0; ++i) fleet_->Step();
  ASSERT_EQ(fleet_->scheduler.view().checkpoint.id, CheckpointId(1));
  EXPECT_TRUE(fleet_->AskForCheckpoint(7).empty());
  std::vector<CheckpointRequest> told;
  for (int i = 0; i < 300 && told.empty(); ++i) {
    fleet_->Step();
    told = fleet_->AskForCheckpoint(7);
  }
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0].directory, "run/checkpoints/ckpt-2");
}

TEST_F(ChainTest, AFailedRequestIsAnsweredWithTheReason) {
  Job without = Asking(8);
  without.storage.durability = Durability::kNone;
  Start(without);
  const auto none = fleet_->AskForCheckpoint(1);
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].code, ErrorCode::kInvalidArgument);
  EXPECT_NE(none[0].message.find("durability"), std::string::npos);

  FakeFleet early(Asking(8));
  const auto nothing = early.AskForCheckpoint(1);
  ASSERT_EQ(nothing.size(), 1u);
  EXPECT_EQ(nothing[0].code, ErrorCode::kUnavailable);

  Start(Asking(8));
  fleet_->store.fail = true;
  std::vector<CheckpointRequest> told = fleet_->AskForCheckpoint(2);
  for (int i = 0; i < 300 && told.empty(); ++i) {
    fleet_->Step();
    told = fleet_->AskForCheckpoint(2);
  }
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0].code, ErrorCode::kIo);
  EXPECT_NE(told[0].message.find("No space left"), std::string::npos);

  Start(Asking(8));
  for (auto& shard : fleet_->shards) shard->writes_parts = false;
  EXPECT_TRUE(fleet_->AskForCheckpoint(3).empty());
  fleet_->RequestStop();
  fleet_->RequestStop();
  const auto ended = fleet_->AskForCheckpoint(3);
  ASSERT_FALSE(ended.empty());
  EXPECT_EQ(ended[0].code, ErrorCode::kCancelled);
}

TEST_F(ChainTest, RequestsBeyondTheLimitAreRefused) {
  Start(Asking(8));
  for (auto& shard : fleet_->shards) shard->writes_parts = false;
  for (std::uint64_t i = 1; i <= limits::kCheckpointRequestsMax; ++i)
    ASSERT_TRUE(fleet_->AskForCheckpoint(i).empty()) << i;
  const auto refused = fleet_->AskForCheckpoint(limits::kCheckpointRequestsMax + 1);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].code, ErrorCode::kOverloaded);
}

}  // namespace
}  // namespace tarn::scheduler

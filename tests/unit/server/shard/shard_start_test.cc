// Shows how a Welcome starts a shard: its partitions, its tier, the rows of a checkpoint, and which errors it reports.
#include "server/shard/shard_start.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_cold_store.h"
#include "tests/unit/server/shard/shard_parts_fixture.h"

namespace tarn::server {
namespace {

TableSpec Table() { return CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate); }

class ShardStartTest : public PartsTest {
 protected:
  ShardStartTest() { job_.job.seed = kJobSeed; }
  ShardBase Base() {
    return {.options = options_,
            .checkpoint_store = &store_,
            .observer = &events_,
            .counters = &counters_,
            .step = &step_,
            .stop = &stop_,
            .outbox = &outbox_,
            .blobs = &blobs_,
            .on_tick = [] {}};
  }
  Welcome WelcomeOf(const std::string& checkpoint) const {
    Welcome welcome;
    welcome.view = ViewOf(1, {}, {Table()});
    welcome.resume_directory = checkpoint;
    return welcome;
  }
  // A checkpoint of another shard, with a row for each of ten keys.
  void WriteCheckpoint(const std::string& directory) {
    Store rows({.job_seed = kJobSeed, .partition_bits = kBits, .owned = parts_->rows.owned()});
    ASSERT_TRUE(rows.AddTable(Table()));
    const std::vector<std::uint32_t> record(2, 0x3f800000);
    for (Key key = 0; key < 10; ++key) ASSERT_TRUE(rows.Load(kTable, {&key, 1}, record));
    store_.Begin({.id = CheckpointId(1), .shard = ShardId(0), .partition_bits = kBits, .tables = rows.cut().Begin()},
                 directory);
    std::vector<CutRows> chunks;
    while (rows.cut().active()) ASSERT_TRUE(rows.cut().Continue(1 << 20, &chunks));
    for (CutRows& chunk : chunks) store_.Put(std::move(chunk));
    store_.Finish({});
  }
  Job job_;
};

TEST_F(ShardStartTest, OwnsThePartitionsOfItsRoutes) {
  routes_.owners = EvenOwners(kBits, 2);
  const auto parts = server::MakeParts(Base(), job_, routes_);
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)->rows.owned().size(), 2u);
  EXPECT_EQ((*parts)->rows.tier(), nullptr);
  EXPECT_EQ((*parts)->view.view().routes.owners, routes_.owners);
}

TEST_F(ShardStartTest, RoutesWithoutAnOwnerForEachPartitionAreRefused) {
  routes_.owners.pop_back();
  EXPECT_EQ(server::MakeParts(Base(), job_, routes_).error().code, ErrorCode::kMalformed);
}

TEST_F(ShardStartTest, ATierIsMadeWithItsBudgetOrTheStartFails) {
  options_.make_tier = [](const Job&) -> Expected<Tier> {
    return Tier{std::make_unique<MemoryColdStore>(), 1'000'000};
  };
  const auto parts = server::MakeParts(Base(), job_, routes_);
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)->rows.tier()->limit_bytes(), 1'000'000u);
  options_.make_tier = [](const Job&) -> Expected<Tier> { return Fail(ErrorCode::kIo, "no disk"); };
  EXPECT_EQ(server::MakeParts(Base(), job_, routes_).error().message, "no disk");
}

TEST_F(ShardStartTest, TheRowsOfACheckpointAreLoaded) {
  WriteCheckpoint("checkpoints/1");
  ASSERT_TRUE(StartState(Base(), job_, WelcomeOf("checkpoints/1"), parts_.get()));
  EXPECT_EQ(parts_->rows.row_count(), 10u);
  EXPECT_FALSE(outbox_.logging());
}

TEST_F(ShardStartTest, AMissingCheckpointIsAnError) {
  EXPECT_FALSE(StartState(Base(), job_, WelcomeOf("checkpoints/2"), parts_.get()));
}

TEST_F(ShardStartTest, AJobWithALogNeedsAShardWithALog) {
  job_.storage.durability = Durability::kLog;
  const Status status = StartState(Base(), job_, WelcomeOf(""), parts_.get());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("the shard has none: a server needs --run-dir"), std::string::npos);
}

// A log that an older program wrote.
class OldLog final : public ShardLog {
 public:
  Status Open(const LogIdentity&) override { return {}; }
  Status Recover(const LogIdentity&, CheckpointId, LogSequence, LogSink&) override {
    return Fail(ErrorCode::kUnsupported, "segment-1.log: format version 1, expected 2: an older tarn wrote it");
  }
  LogSequence BeginSegment(CheckpointId, LogRecord) override { return {}; }
  LogSequence Append(LogRecord) override { return {}; }
  void DropBefore(CheckpointId) override {}
  Expected<LogSequence> TakeSynced() override { return LogSequence{}; }
  std::uint64_t bytes() const override { return 0; }
};

TEST_F(ShardStartTest, TheErrorOfAnOlderLogNamesTheNewestCheckpoint) {
  OldLog log;
  options_.log = &log;
  job_.storage.durability = Durability::kLog;
  Welcome welcome = WelcomeOf("run/checkpoints/ckpt-7");
  welcome.log = {.run = 1, .recover = true};
  const Status status = StartState(Base(), job_, welcome, parts_.get());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().message,
            "shard 0: log: segment-1.log: format version 1, expected 2: an older tarn wrote it; without this log a run "
            "can continue from run/checkpoints/ckpt-7, or an earlier one, in a new folder: --resume CHECKPOINT");
}

}  // namespace
}  // namespace tarn::server

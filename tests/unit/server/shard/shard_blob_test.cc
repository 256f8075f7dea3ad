// Shows that a shard writes workers' blobs into a checkpoint piece by piece (rule K9) and reads them back (rule K10).
#include "server/checkpoint/blob_store.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

// Records what the shard requests; the test reports the results.
struct ScriptedStore : BlobStore {
  void Write(BlobWrite write) override { writes.push_back(std::move(write)); }
  void Abandon(CheckpointId checkpoint, const std::string&, Incarnation worker, WorkerRank) override {
    abandoned.emplace_back(checkpoint, worker);
  }
  Expected<BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset, std::size_t) override {
    if (verifying) return Fail(ErrorCode::kOverloaded, "being verified");
    if (damaged) return Fail(ErrorCode::kCorrupt, directory + "/4-worker-0-3.blob: damaged");
    if (rank != WorkerRank(0)) return Fail(ErrorCode::kNotFound, "no blob");
    return BlobSlice{6, Buffer::Copy(&"abcdef"[offset], std::min<std::size_t>(4, 6 - offset))};
  }
  std::vector<BlobWrite> writes;
  std::vector<std::pair<CheckpointId, Incarnation>> abandoned;
  bool verifying = false, damaged = false;
};

class ShardBlobTest : public ShardTest {
 protected:
  void Begin() {
    ShardOptions options;
    options.blobs = &blobs_;
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), options);
    Order(4, "ckpt-4");
  }
  void Order(std::uint64_t id, const std::string& directory) {
    view_.checkpoint = {.id = CheckpointId(id), .at_clock = true, .clock = Clock(100), .directory = directory};
    view_.checkpoint.blobs = true;
    NextView();
    out_.clear();
  }
  void Put(std::uint64_t offset, const std::string& bytes, std::uint64_t total = 10, std::uint64_t checkpoint = 4,
           std::uint64_t incarnation = 10) {
    Message message =
        FromWorker(incarnation == 10 ? 0 : 1, incarnation, PutBlob{CheckpointId(checkpoint), offset, total});
    message.values = Buffer::Copy(bytes.data(), bytes.size());
    Deliver(std::move(message));
  }
  // The store has written the last piece.
  void Written(bool whole = false) {
    const BlobWrite& write = blobs_.writes.back();
    BlobWritten written{write.checkpoint, write.worker, write.offset + write.bytes.size(), {}, ErrorCode::kOk, {}};
    if (whole) written.file = {.name = "4-worker-0-10.blob", .bytes = 10, .crc32c = 7};
    shard_->OnBlobWritten(written, now_, &out_);
  }
  CheckpointId Writing() {
    out_.clear();
    NextView();
    const auto beats = Take<Heartbeat>();
    return beats.empty() ? CheckpointId(~std::uint64_t{0}) : beats.back().writing;
  }
  ScriptedStore blobs_;
};

TEST_F(ShardBlobTest, K9PiecesAreWrittenInOrderAndAnsweredOnceWritten) {
  Begin();
  EXPECT_EQ(Writing(), CheckpointId(0));
  Put(0, "abcd");
  ASSERT_EQ(blobs_.writes.size(), 1u);
  EXPECT_EQ(blobs_.writes[0].directory, "ckpt-4");
  EXPECT_EQ(blobs_.writes[0].rank, WorkerRank(0));
  EXPECT_TRUE(Take<PutBlobAck>().empty()) << "not before it is written";
  Put(0, "abcd");  // repeated meanwhile
  EXPECT_EQ(blobs_.writes.size(), 1u);
  EXPECT_EQ(Writing(), CheckpointId(4));
  Written();
  auto acks = Take<PutBlobAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].received, 4u);
  EXPECT_TRUE(acks[0].file.name.empty());

  Put(0, "abcd");  // its answer was lost
  acks = Take<PutBlobAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].received, 4u);
  Put(8, "ij");  // too early
  EXPECT_EQ(Take<PutBlobAck>().at(0).received, 4u);
  EXPECT_EQ(blobs_.writes.size(), 1u);

  Put(4, "efghij");
  ASSERT_EQ(blobs_.writes.size(), 2u);
  Written(true);
  acks = Take<PutBlobAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].received, 10u);
  EXPECT_EQ(acks[0].file.name, "4-worker-0-10.blob");
  Put(4, "efghij");
  EXPECT_EQ(Take<PutBlobAck>().at(0).file.name, "4-worker-0-10.blob") << "again, if that was lost";
  EXPECT_EQ(blobs_.writes.size(), 2u);
  EXPECT_EQ(Writing(), CheckpointId(0));
}

TEST_F(ShardBlobTest, K9PiecesOfNoOrderedBlobAreNotWritten) {
  Begin();
  Put(0, "abcd", 10, 3);
  Put(0, "abcd", 10, 5);
  view_.checkpoint.blobs = false;
  NextView();
  Put(0, "abcd");
  EXPECT_TRUE(blobs_.writes.empty());
  view_.checkpoint.blobs = true;
  NextView();
  Put(0, "abcd", 10, 4, 99);  // an incarnation that nobody knows
  EXPECT_TRUE(blobs_.writes.empty());
  Put(0, "abcd");
  Written();
  Put(4, "ef", 12);  // of another size than it said before
  EXPECT_EQ(blobs_.writes.size(), 1u);
  EXPECT_TRUE(Take<PutBlobAck>().size() == 1);
}

TEST_F(ShardBlobTest, K9ADirectoryIsInUseUntilItsAbandonedBlobsAreClosed) {
  Begin();
  Put(0, "abcd");
  Put(0, "wxyz", 10, 4, 11);
  view_.workers[1].state = WorkerState::kFencing;  // worker 1 dies
  NextView();
  ASSERT_EQ(blobs_.abandoned.size(), 1u);
  EXPECT_EQ(blobs_.abandoned[0].second, Incarnation(11));
  view_.checkpoint = {};
  NextView();
  ASSERT_EQ(blobs_.abandoned.size(), 2u);
  EXPECT_EQ(Writing(), CheckpointId(4));
  Order(5, "ckpt-5");
  Put(0, "abcd", 10, 5);
  EXPECT_EQ(blobs_.writes.size(), 3u);
  const auto report = [&](std::uint64_t worker, std::uint64_t checkpoint, ErrorCode code) {
    shard_->OnBlobWritten({CheckpointId(checkpoint), Incarnation(worker), 4, {}, code, ""}, now_, &out_);
  };
  out_.clear();
  report(10, 4, ErrorCode::kOk);  // what was under way
  report(11, 4, ErrorCode::kIo);  // ignored
  EXPECT_TRUE(Take<PutBlobAck>().empty());
  EXPECT_FALSE(shard_->stopped());
  EXPECT_EQ(Writing(), CheckpointId(4));
  report(10, 4, ErrorCode::kCancelled);
  report(11, 4, ErrorCode::kCancelled);
  EXPECT_EQ(Writing(), CheckpointId(5));
}

TEST_F(ShardBlobTest, K9AFailedBlobFailsOnlyTheCheckpoint) {
  Begin();
  Put(0, "abcd");
  out_.clear();
  shard_->OnBlobWritten({CheckpointId(4), Incarnation(10), 4, {}, ErrorCode::kIo, "ckpt-4/x: No space left on device"},
                        now_, &out_);
  EXPECT_FALSE(shard_->stopped());
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].code, ErrorCode::kIo);
  EXPECT_EQ(parts[0].message, "ckpt-4/x: No space left on device");
  // The shard's own part may succeed after that; the checkpoint still fails.
  out_.clear();
  shard_->OnCheckpointWritten({.id = CheckpointId(4)}, now_, &out_);
  for (const CheckpointPart& part : Take<CheckpointPart>()) EXPECT_EQ(part.code, ErrorCode::kIo);
}

TEST_F(ShardBlobTest, K10ReturnsTheBlobOfTheRankInTheCheckpoint) {
  ShardOptions options;
  options.blobs = &blobs_;
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), options);
  Deliver(FromWorker(0, 10, GetBlob{0, 0}));
  EXPECT_TRUE(Take<BlobPiece>().empty()) << "it has not gone on from a checkpoint";

  files_.Put("ckpt-4", {});
  shard_ = std::make_unique<Shard>(ShardOptions{.nonce = 77, .blobs = &blobs_}, store_.get(), &events_);
  shard_->Start(now_, &out_);
  SendWelcome("ckpt-4");
  ASSERT_FALSE(shard_->stopped()) << shard_->stop_reason().reason;
  out_.clear();
  Deliver(FromWorker(0, 10, GetBlob{0, 0}));
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(std::get<BlobPiece>(out_[0].message.body).total, 6u);
  EXPECT_EQ(out_[0].message.values.size(), 4u);
  EXPECT_EQ(std::memcmp(out_[0].message.values.data(), "abcd", 4), 0);
  out_.clear();
  Deliver(FromWorker(0, 10, GetBlob{4, 0}));
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(std::memcmp(out_[0].message.values.data(), "ef", 2), 0);
  out_.clear();
  Deliver(FromWorker(1, 11, GetBlob{0, 0}));
  EXPECT_EQ(out_.size(), 1u) << "that of any rank, for its program";
  out_.clear();
  Deliver(FromWorker(0, 10, GetBlob{0, 1}));
  EXPECT_TRUE(out_.empty()) << "of this rank there is none";
  EXPECT_FALSE(shard_->stopped());

  blobs_.verifying = true;
  Deliver(FromWorker(0, 10, GetBlob{0, 0}));
  EXPECT_TRUE(out_.empty()) << "the worker repeats its request";
  EXPECT_FALSE(shard_->stopped());
  blobs_.verifying = false;

  blobs_.damaged = true;
  Deliver(FromWorker(0, 10, GetBlob{0, 0}));
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().reason, "ckpt-4/4-worker-0-3.blob: damaged");
}

}  // namespace
}  // namespace tarn::server

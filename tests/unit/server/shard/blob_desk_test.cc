// Shows rules K9 and K10: pieces of a worker's blob are written one at a time, in order, into the ordered checkpoint;
// and a worker reads its blob from the checkpoint that the run resumes from.
#include "server/shard/blob_desk.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1};
constexpr Incarnation kWorker(10);

struct Blobs final : BlobStore {
  void Write(BlobWrite write) override { writes.push_back(std::move(write)); }
  void Abandon(CheckpointId, const std::string& directory, Incarnation, WorkerRank) override {
    abandoned.push_back(directory);
  }
  Expected<BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset, std::size_t) override {
    read = directory;
    if (rank != WorkerRank(3)) return Fail(ErrorCode::kNotFound, "none");
    return BlobSlice{.total = offset + 1, .bytes = {}};
  }
  std::vector<BlobWrite> writes;
  std::vector<std::string> abandoned;
  std::string read;
};

class BlobDeskTest : public testing::Test {
 protected:
  BlobDeskTest() { desk_.SetOrder(OrderOf(1)); }
  static CheckpointOrder OrderOf(std::uint64_t id) {
    CheckpointOrder order;
    order.id = CheckpointId(id);
    order.directory = "checkpoints/" + std::to_string(id);
    order.blobs = true;
    return order;
  }
  // Delivers a piece. Returns the immediate answer, if there is one.
  Expected<std::optional<BlobDesk::Answer>> Put(std::uint64_t offset, std::uint64_t checkpoint = 1) {
    return desk_.Put(kPeer, {Role::kWorker, 3, kWorker}, PutBlob{CheckpointId(checkpoint), offset, 16},
                     Buffer::Allocate(8));
  }
  Expected<std::optional<BlobDesk::Answer>> OnWritten(std::uint64_t received, const std::string& file = {}) {
    return desk_.OnWritten({.checkpoint = CheckpointId(1), .worker = kWorker, .received = received, .file = {file}});
  }
  Blobs store_;
  BlobDesk desk_{&store_};
};

TEST_F(BlobDeskTest, PiecesAreWrittenInOrderAndAnsweredOnceWritten) {
  EXPECT_EQ(desk_.writing(), CheckpointId(0));
  EXPECT_FALSE(Put(0).value());
  EXPECT_FALSE(Put(0).value()) << "it is being written";
  ASSERT_EQ(store_.writes.size(), 1u);
  EXPECT_EQ(desk_.writing(), CheckpointId(1));
  EXPECT_EQ(OnWritten(8).value()->ack.received, 8u);
  EXPECT_EQ(Put(0).value()->ack.received, 8u) << "it is there already";
  EXPECT_FALSE(Put(8).value());
  EXPECT_EQ(OnWritten(16, "blob").value()->ack.file.name, "blob");
  EXPECT_EQ(desk_.writing(), CheckpointId(0));
}

TEST_F(BlobDeskTest, APieceOfAnotherCheckpointIsRefused) {
  EXPECT_EQ(Put(0, 2).error().code, ErrorCode::kUnavailable);
  CheckpointOrder without = OrderOf(2);
  without.blobs = false;
  desk_.SetOrder(without);
  EXPECT_EQ(Put(0, 2).error().code, ErrorCode::kUnavailable);
}

TEST_F(BlobDeskTest, BlobsOfAPreviousOrderAreAbandoned) {
  ASSERT_TRUE(Put(0));
  desk_.SetOrder(OrderOf(2));
  EXPECT_EQ(store_.abandoned, std::vector<std::string>{"checkpoints/1"});
  EXPECT_EQ(desk_.writing(), CheckpointId(1)) << "until the store is done with it";
  EXPECT_TRUE(desk_.OnWritten({.checkpoint = CheckpointId(1), .worker = kWorker, .code = ErrorCode::kCancelled}));
  EXPECT_EQ(desk_.writing(), CheckpointId(0));
}

TEST_F(BlobDeskTest, ABlobThatCannotBeWrittenIsAnError) {
  ASSERT_TRUE(Put(0));
  const auto failed = desk_.OnWritten(
      {.checkpoint = CheckpointId(1), .worker = kWorker, .code = ErrorCode::kNotFound, .message = "no folder"});
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
}

TEST_F(BlobDeskTest, ARankGetsItsBlobOfTheCheckpointThatTheRunResumesFrom) {
  EXPECT_EQ(desk_.Get(GetBlob{0, 3}).error().code, ErrorCode::kNotFound);
  desk_.SetResumed("checkpoints/9");
  EXPECT_EQ(desk_.Get(GetBlob{4, 3}).value().total, 5u);
  EXPECT_EQ(store_.read, "checkpoints/9");
  EXPECT_EQ(desk_.Get(GetBlob{0, 4}).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tarn::server

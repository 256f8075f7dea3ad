// Shows that blobs are files of a checkpoint: written in pieces, abandoned, read back, and refused by name if they are
// damaged.
#include "server/checkpoint/file_blob_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

#include "core/crc32c.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

constexpr Incarnation kWorker{12};
constexpr WorkerRank kRank{3};

class FileBlobStoreTest : public testing::Test {
 protected:
  FileBlobStoreTest() {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FileBlobStoreTest() override { fs::remove_all(root_); }

  BlobWritten Wait() {
    for (;;) {
      woken_.acquire();
      for (BlobWritten& written : store_.TakeWritten()) return written;
    }
  }
  BlobWritten Write(std::uint64_t offset, const std::string& bytes, std::uint64_t total) {
    store_.Write(
        {CheckpointId(7), Directory(), kWorker, kRank, offset, total, Buffer::Copy(bytes.data(), bytes.size())});
    return Wait();
  }
  std::string Directory() const { return (root_ / "ckpt-7").string(); }
  std::string Path() const { return Directory() + "/7-worker-3-12.blob"; }
  // A whole checkpoint with the blob "abcdefgh" of rank 3.
  void MakeCheckpoint() {
    Write(0, "abc", 8);
    const BlobWritten written = Write(3, "defgh", 8);
    Manifest manifest;
    manifest.id = CheckpointId(7);
    manifest.generations = {{CheckpointId(7), Clock(9), {}, {}, 0}};
    manifest.blobs = {{kRank, kWorker, written.file}};
    const Status status = WriteManifest(Directory(), manifest);
    ASSERT_TRUE(status) << status.error().message;
  }
  std::string Read(std::uint64_t offset, std::size_t bytes_max, WorkerRank rank = kRank) {
    const auto slice = store_.Read(Directory(), rank, offset, bytes_max);
    if (!slice) return std::string(ErrorName(slice.error().code)) + ": " + slice.error().message;
    EXPECT_EQ(slice->total, 8u);
    return {reinterpret_cast<const char*>(slice->bytes.data()), slice->bytes.size()};
  }

  const fs::path root_ = fs::path(testing::TempDir()) / "tarn_blobs";
  std::counting_semaphore<> woken_{0};
  DiskPool pool_;
  FileBlobStore store_{&pool_, [this] { woken_.release(); }};
};

TEST_F(FileBlobStoreTest, ABlobIsWrittenPieceByPiece) {
  BlobWritten written = Write(0, "abc", 8);
  EXPECT_EQ(written.code, ErrorCode::kOk) << written.message;
  EXPECT_EQ(written.received, 3u);
  EXPECT_TRUE(written.file.name.empty());
  EXPECT_EQ(written.worker, kWorker);
  written = Write(3, "defgh", 8);
  EXPECT_EQ(written.received, 8u);
  EXPECT_EQ(written.file.name, "7-worker-3-12.blob");
  EXPECT_EQ(written.file.bytes, 8u);
  EXPECT_EQ(written.file.crc32c, Crc32c(std::string_view("abcdefgh")));
  std::string bytes;
  std::ifstream(Path()) >> bytes;
  EXPECT_EQ(bytes, "abcdefgh");
}

TEST_F(FileBlobStoreTest, AnAbandonedBlobIsRemoved) {
  Write(0, "abc", 8);
  EXPECT_TRUE(fs::exists(Path()));
  store_.Abandon(CheckpointId(7), Directory(), kWorker, kRank);
  EXPECT_EQ(Wait().code, ErrorCode::kCancelled);
  EXPECT_FALSE(fs::exists(Path()));
  store_.Abandon(CheckpointId(7), Directory(), Incarnation(99), kRank);  // never begun
  EXPECT_EQ(Wait().code, ErrorCode::kCancelled);
  EXPECT_EQ(Write(0, "abc", 8).code, ErrorCode::kOk);
}

TEST_F(FileBlobStoreTest, TheErrorNamesAFolderThatCannotBeMade) {
  std::ofstream(root_ / "ckpt-7") << "a file";
  const BlobWritten written = Write(0, "abc", 8);
  EXPECT_EQ(written.code, ErrorCode::kIo);
  EXPECT_NE(written.message.find(Directory()), std::string::npos) << written.message;
}

TEST_F(FileBlobStoreTest, ABlobIsReadInSlices) {
  MakeCheckpoint();
  EXPECT_EQ(Read(0, 100), "abcdefgh");
  EXPECT_EQ(Read(0, 3), "abc");
  EXPECT_EQ(Read(6, 3), "gh");
  EXPECT_EQ(Read(8, 3), "not-found: 7-worker-3-12.blob: 8 bytes, asked for from 8 on");
  EXPECT_EQ(Read(0, 3, WorkerRank(4)), "not-found: " + Directory() + ": no blob of worker 4");
}

TEST_F(FileBlobStoreTest, ALargeBlobIsVerifiedInTheBackground) {
  MakeCheckpoint();
  for (const bool damaged : {false, true}) {
    if (damaged) std::ofstream(Path()) << "abcdefgX";
    FileBlobStore store(&pool_, [] {}, 7);
    auto slice = store.Read(Directory(), kRank, 0, 3);
    ASSERT_FALSE(slice);
    EXPECT_EQ(slice.error().code, ErrorCode::kOverloaded);
    while (!slice && slice.error().code == ErrorCode::kOverloaded) {
      std::this_thread::yield();
      slice = store.Read(Directory(), kRank, 0, 3);
    }
    EXPECT_EQ(slice ? ErrorCode::kOk : slice.error().code, damaged ? ErrorCode::kCorrupt : ErrorCode::kOk);
  }
}

TEST_F(FileBlobStoreTest, ADamagedBlobIsRefusedByNameAndNoneOfItReturned) {
  MakeCheckpoint();
  std::ofstream(Path()) << "abcdefgX";
  EXPECT_EQ(Read(0, 3).substr(0, 9 + Path().size() + 19), "corrupt: " + Path() + ": damaged: its CRC-");
  std::ofstream(Path()) << "abc";
  EXPECT_EQ(Read(0, 3), "corrupt: " + Path() + ": 3 bytes, expected 8");
  fs::remove(Path());
  EXPECT_NE(Read(0, 3).find(Path()), std::string::npos);
  fs::remove(Directory() + "/MANIFEST");
  EXPECT_TRUE(Read(0, 3).starts_with("corrupt: ")) << Read(0, 3);
}

}  // namespace
}  // namespace tarn::server

// Shows a shard's log on real files: records become durable together, in order, on a strand of a pool; only one log at
// a time can open the folder; errors of the disk are reported.
#include "server/log/file_shard_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "tests/unit/server/log/faulty_files.h"
#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

class FileShardLogTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / fmt::format("tarn-log-test-{}", ::getpid());
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::unique_ptr<FileShardLog> Make(std::unique_ptr<FileOps> files = MakeFileOps()) {
    return std::make_unique<FileShardLog>(&pool_, std::move(files), directory_.string(), [] {}, kSmall);
  }
  // Waits until record `wanted` is durable, or the log has failed.
  static Expected<LogSequence> Await(FileShardLog& log, LogSequence wanted) {
    for (;;) {
      log.EndTurn();
      auto synced = log.TakeSynced();
      if (!synced || *synced >= wanted) return synced;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  fs::path directory_;
  DiskPool pool_;
};

TEST_F(FileShardLogTest, RecordsAreReadBack) {
  {
    auto log = Make();
    ASSERT_TRUE(log->Open(kIdentity));
    log->BeginSegment({}, RecordOf(1));
    LogSequence last;
    for (std::uint64_t i = 2; i <= 300; ++i) last = log->Append(RecordOf(i));
    EXPECT_EQ(last, LogSequence(300));
    ASSERT_EQ(*Await(*log, last), last);
    EXPECT_EQ(log->BeginSegment(CheckpointId(4), RecordOf(301)), LogSequence(301));
    log->DropBefore(CheckpointId(4));
    ASSERT_TRUE(Await(*log, LogSequence(301)));
    while (log->bytes() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until the segment has gone
  }
  EXPECT_FALSE(fs::exists(directory_ / SegmentName(1)));
  auto log = Make();
  Kept kept;
  ASSERT_TRUE(log->Recover(kIdentity, CheckpointId(4), LogSequence(301), kept));
  EXPECT_EQ(kept.records.size(), 1u);
  EXPECT_TRUE(kept.Right());
  EXPECT_EQ(log->BeginSegment(ShardLog::kContinues, RecordOf(302)), LogSequence(302));
  EXPECT_EQ(*Await(*log, LogSequence(302)), LogSequence(302));
}

// Records longer than one write, and shorter ones.
TEST_F(FileShardLogTest, LongRecordsAreReadBack) {
  constexpr std::size_t kLengths[] = {1, 4095, 4096, (1 << 20) - 5000, (1 << 20) + 1, 3'333'333, 5 << 20};
  {
    auto log = Make();
    ASSERT_TRUE(log->Open(kIdentity));
    log->BeginSegment({}, RecordOf(1));
    for (const std::size_t length : kLengths) {
      Buffer values = Buffer::Allocate(length);
      for (std::size_t i = 0; i < length; ++i) values.data()[i] = std::byte(Mix64(i));
      ASSERT_TRUE(Await(*log, log->Append({{}, {}, std::move(values)})));
    }
  }
  struct Lengths final : LogSink {
    Status OnRecord(LogSequence, bool, LogRecord record) override {
      lengths.push_back(record.values.size());
      for (std::size_t i = 0; i < record.values.size() && right; ++i)
        right = lengths.size() == 1 || record.values.data()[i] == std::byte(Mix64(i));
      return {};
    }
    std::vector<std::size_t> lengths;
    bool right = true;
  } read;
  ASSERT_TRUE(Make()->Recover(kIdentity, {}, LogSequence(1 + std::size(kLengths)), read));
  EXPECT_TRUE(std::ranges::equal(std::span(read.lengths).subspan(1), kLengths));
  EXPECT_TRUE(read.right);
}

TEST_F(FileShardLogTest, AppendedRecordsAreDurableAfterTheEndOfTheLog) {
  {
    auto log = Make();
    ASSERT_TRUE(log->Open(kIdentity));
    log->BeginSegment({}, RecordOf(1));
    for (std::uint64_t i = 2; i <= 50; ++i) log->Append(RecordOf(i));
  }
  Kept kept;
  ASSERT_TRUE(Make()->Recover(kIdentity, {}, LogSequence(50), kept));
  EXPECT_EQ(kept.records.size(), 50u);
}

TEST_F(FileShardLogTest, ASecondLogCannotOpenTheFolder) {
  auto log = Make();
  ASSERT_TRUE(log->Open(kIdentity));
  Kept kept;
  const auto second = Make(MakeFileOps(std::chrono::milliseconds(0)))->Recover(kIdentity, {}, {}, kept);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
}

// A killed server keeps its lock on the folder until the kernel has freed its memory.
TEST_F(FileShardLogTest, WaitsUntilTheFolderIsReleased) {
  auto first = Make();
  ASSERT_TRUE(first->Open(kIdentity));
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  EXPECT_TRUE(Make()->Open(kIdentity));
  end.join();
}

TEST_F(FileShardLogTest, TheErrorNamesAFolderThatCannotBeMade) {
  fs::create_directories(directory_.parent_path());
  fclose(fopen(directory_.c_str(), "w"));
  const auto status = Make()->Open(kIdentity);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_NE(status.error().message.find(directory_.string()), std::string::npos);
}

TEST_F(FileShardLogTest, TheErrorNamesAFolderThatCannotBeWritten) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  fs::create_directories(directory_);
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  const auto status = Make()->Open(kIdentity);
  fs::permissions(directory_, fs::perms::owner_all);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("LOCK"), std::string::npos) << status.error().message;
}

TEST_F(FileShardLogTest, AFailureIsReportedAndNoLaterRecordIsDurable) {
  Fault fault;
  auto log = Make(std::make_unique<FaultyFileOps>(MakeFileOps(), &fault));
  ASSERT_TRUE(log->Open(kIdentity));
  const LogSequence first = log->BeginSegment({}, RecordOf(1));
  ASSERT_EQ(*Await(*log, first), first);
  fault.Arm(2, FaultKind::kFull);
  for (std::uint64_t i = 2; i <= 20; ++i) log->Append(RecordOf(i));
  const auto synced = Await(*log, LogSequence(20));
  if (!synced) {
    EXPECT_EQ(synced.error().code, ErrorCode::kIo);
  } else {
    log->Append(RecordOf(21));
    EXPECT_FALSE(Await(*log, LogSequence(21)));
  }
}

TEST_F(FileShardLogTest, OutOfMemoryOnTheStrandIsAFailure) {
  Fault fault;
  auto log = Make(std::make_unique<FaultyFileOps>(MakeFileOps(), &fault));
  ASSERT_TRUE(log->Open(kIdentity));
  const LogSequence first = log->BeginSegment({}, RecordOf(1));
  ASSERT_EQ(*Await(*log, first), first);
  fault.Arm(4, FaultKind::kNoMemory);
  Expected<LogSequence> synced = first;
  for (std::uint64_t i = 2; i <= 100 && synced; ++i) synced = Await(*log, log->Append(RecordOf(i)));
  ASSERT_FALSE(synced);
  EXPECT_EQ(ToString(synced.error()), "io: out of memory");
}

}  // namespace
}  // namespace tarn::server

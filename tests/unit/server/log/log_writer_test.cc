// Shows that a log can use all of a disk: a segment that begins on a nearly full disk (each checkpoint begins one)
// reserves only the space that is left, and the log does not fail.
#include "server/log/log_writer.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_files.h"
#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

TEST(LogWriterTest, ASegmentThatBeginsOnANearlyFullDiskUsesTheRemainingSpace) {
  MemoryDisk disk;
  const auto files = MakeMemoryFileOps(&disk);
  LogSequence durable;
  {
    Driver driver(files.get());
    ASSERT_TRUE(driver.Open());
    driver.Begin({});
    ASSERT_TRUE(driver.Commit());
    disk.SetRoom(disk.BytesUsed());
    driver.Begin(CheckpointId(1));
    const Status begun = driver.Commit();
    ASSERT_TRUE(begun) << begun.error().message;
    EXPECT_LE(disk.BytesUsed(), 7 * kLogPage) << "the mark and a segment's step";
    Status status;
    for (int i = 0; i < 100 && status; ++i) {
      durable = driver.durable();
      driver.Append(1);
      status = driver.Commit();
    }
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("No space left on device"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find(SegmentName(2)), std::string::npos) << status.error().message;
  }
  EXPECT_GE(durable, LogSequence(3)) << "there was room for more than the head";
  Kept kept;
  const auto tail = ReadLog(files.get(), kDirectory, kIdentity, CheckpointId(1), durable, kept);
  ASSERT_TRUE(tail) << tail.error().message;
  EXPECT_GE(tail->last, durable);
  EXPECT_TRUE(kept.Right());
}

// Space that one log does not reserve is available to other logs on the disk.
TEST(LogWriterTest, OnANearlyFullDiskASegmentGrowsOnlyByWhatItNeeds) {
  MemoryDisk disk;
  const auto files = MakeMemoryFileOps(&disk);
  Driver driver(files.get());
  ASSERT_TRUE(driver.Open());
  disk.SetRoom(disk.BytesUsed() + 4 * kLogPage);
  driver.Begin({});
  ASSERT_TRUE(driver.Commit());
  disk.SetRoom(disk.BytesUsed() + 20 * kLogPage);
  const std::uint64_t before = disk.BytesUsed();
  driver.Append(1);
  ASSERT_TRUE(driver.Commit());
  EXPECT_EQ(disk.BytesUsed(), before + kLogPage);
}

}  // namespace
}  // namespace tarn::server

// Shows that a segment's file contains the header and the batches that were written, and that it reserves less space on
// a nearly full disk.
#include "server/log/segment_file.h"

#include <gtest/gtest.h>

#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

class SegmentFileTest : public testing::Test {
 protected:
  SegmentFileTest() { EXPECT_TRUE(files_->MakeDirectory("log")); }

  SegmentFile Create() { return {files_->Create("log/segment").value(), kSmall}; }

  MemoryDisk disk_;
  std::unique_ptr<FileOps> files_ = MakeMemoryFileOps(&disk_);
  const SegmentHeader header_{kIdentity, (std::uint64_t{1} << 32) + 5, LogSequence(7), CheckpointId(2)};
};

TEST_F(SegmentFileTest, HoldsWhatWasWritten) {
  SegmentFile segment = Create();
  ASSERT_TRUE(segment.Begin(header_, kSmall.allocate_bytes, kLogPage));
  EXPECT_EQ(segment.end(), kLogPage);
  const LogRecord records[] = {RecordOf(7), RecordOf(8)};
  ASSERT_TRUE(segment.Write(LogSequence(7), records));
  ASSERT_TRUE(segment.Sync());
  ASSERT_TRUE(segment.Prepare());
  ASSERT_TRUE(segment.Trim());

  const auto file = files_->OpenToRead("log/segment").value();
  EXPECT_EQ(file->Size(), segment.end());
  std::byte bytes[kLogPage];
  ASSERT_TRUE(file->Read(0, bytes));
  const auto header = DecodeSegmentHeader(bytes);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->number, header_.number);
  EXPECT_EQ(header->first, header_.first);
  const auto batch = ReadBatch(file.get(), "log/segment", segment.end(), header_.number, kLogPage);
  ASSERT_TRUE(batch) << batch.error().message;
  const auto decoded = DecodeBatch(batch->bytes);
  ASSERT_TRUE(decoded);
  ASSERT_EQ(decoded->size(), 2u);
  EXPECT_EQ(TextOf((*decoded)[1]), TextOf(records[1]));
}

TEST_F(SegmentFileTest, ReservesNoMoreThanTheDiskHas) {
  disk_.SetRoom(2 * kLogPage);
  SegmentFile segment = Create();
  ASSERT_TRUE(segment.Begin(header_, kSmall.allocate_bytes, kLogPage));
  const LogRecord small[] = {RecordOf(1)};
  EXPECT_TRUE(segment.Write(LogSequence(7), small));
  EXPECT_FALSE(segment.Write(LogSequence(8), small)) << "the disk is full";
}

}  // namespace
}  // namespace tarn::server

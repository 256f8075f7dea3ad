// Shows that a log is read back as written and continues where it ended, and that reading distinguishes records that
// were never durable from durable records that are lost. Each error names the file, the offset and the value expected.
#include "server/log/log_reader.h"

#include <cstring>

#include "core/crc32c.h"
#include "tests/unit/server/log/log_fixture.h"

namespace tarn::server {
namespace {

bool Says(const Error& error, ErrorCode code, const std::string& text) {
  const bool right = error.code == code && error.message.find(text) != std::string::npos;
  if (!right) ADD_FAILURE() << ToString(error) << "\nexpected " << ErrorName(code) << " with: " << text;
  return right;
}

TEST_F(LogTest, ReadsBackWhatWasWritten) {
  WriteThreeSegments();
  Kept kept;
  const auto tail = Read(&kept);
  ASSERT_TRUE(tail.has_value()) << tail.error().message;
  EXPECT_EQ(kept.records.size(), 30u);
  EXPECT_TRUE(kept.Right());
  EXPECT_EQ(kept.heads, (std::vector{LogSequence(1), LogSequence(11), LogSequence(21)}));
  EXPECT_EQ(tail->next_number, 4u);
  EXPECT_EQ(tail->last, LogSequence(30));
}

TEST_F(LogTest, ReadsThePreviousFormat) {
  WriteThreeSegments();
  for (const std::uint64_t number : {1, 2, 3}) {
    std::vector<std::byte>& bytes = Bytes(PathOf(number));
    bytes[8] = std::byte{kLogVersionMin};
    const std::span<const std::byte> header(bytes.data(), kSegmentHeaderBytes);
    const std::uint32_t crc = Crc32c(header.subspan(16), Crc32c(header.first(12)));
    std::memcpy(bytes.data() + 12, &crc, sizeof crc);
  }
  Kept kept;
  ASSERT_TRUE(Read(&kept));
  EXPECT_EQ(kept.records.size(), 30u);
  EXPECT_TRUE(kept.Right());
}

TEST_F(LogTest, ReadsFromACheckpointOn) {
  WriteThreeSegments();
  Kept kept;
  ASSERT_TRUE(Read(&kept, CheckpointId(5)));
  EXPECT_EQ(kept.sequences.front(), LogSequence(11));
  EXPECT_EQ(kept.records.size(), 20u);
  EXPECT_TRUE(kept.Right());
  Says(ReadError(CheckpointId(7)), ErrorCode::kCorrupt, "no segment begins at checkpoint 7");
}

TEST_F(LogTest, ContinuesAfterARecovery) {
  WriteThreeSegments();
  for (int again = 0; again < 3; ++again) {
    Kept kept;
    ASSERT_TRUE(driver_.Recover(CheckpointId(6), LogSequence(30), &kept));
    EXPECT_TRUE(kept.Right());
    driver_.Begin(ShardLog::kContinues);
    driver_.Append(4);
    ASSERT_TRUE(driver_.Commit());
  }
  Kept kept;
  ASSERT_TRUE(Read(&kept));
  EXPECT_EQ(kept.records.size(), 45u);
  EXPECT_TRUE(kept.Right());
}

TEST_F(LogTest, SegmentsBeforeACheckpointAreRemoved) {
  WriteThreeSegments();
  driver_.Drop(CheckpointId(6));
  ASSERT_TRUE(driver_.Commit());
  EXPECT_EQ(disk_.Find(PathOf(1)), nullptr);
  EXPECT_EQ(disk_.Find(PathOf(2)), nullptr);
  Kept kept;
  ASSERT_TRUE(Read(&kept, CheckpointId(6)));
  EXPECT_EQ(kept.records.size(), 10u);
}

TEST_F(LogTest, IgnoresATornTail) {
  WriteThreeSegments();
  driver_.Append(5);
  ASSERT_TRUE(driver_.Write());
  Kept all;
  const auto whole = Read(&all);
  ASSERT_EQ(all.records.size(), 35u);
  Bytes(PathOf(3))[whole->segments.back().bytes - kLogPage + 200] ^= std::byte{1};
  Kept kept;
  const auto tail = Read(&kept);
  ASSERT_TRUE(tail.has_value()) << tail.error().message;
  EXPECT_EQ(kept.records.size(), 30u);
}

TEST_F(LogTest, RefusesDamageBeforeAGoodBatch) {
  WriteThreeSegments();
  Bytes(PathOf(3))[kLogPage + 40] ^= std::byte{1};
  const Error error = ReadError();
  Says(error, ErrorCode::kCorrupt, PathOf(3) + ": offset 4096: checksum");
  Says(error, ErrorCode::kCorrupt, "a good batch lies behind it");
}

// Before memory is allocated for it.
TEST_F(LogTest, RefusesABatchLargerThanAnyThatIsWritten) {
  WriteThreeSegments();
  std::vector<std::byte>& bytes = Bytes(PathOf(1));
  bytes.resize(std::size_t{64} << 20);
  bytes[kLogPage + 8 + 3] = std::byte{2};  // BatchHeader::bytes: 32 MiB more
  bytes[kLogPage + 28] = std::byte{2};     // BatchHeader::records
  Says(ReadError(), ErrorCode::kCorrupt, PathOf(1) + ": offset 4096: a batch of ");
  Says(ReadError(), ErrorCode::kCorrupt, "expected at most 8388632 for 2 records");
}

TEST_F(LogTest, RefusesDamageInAnEarlierSegment) {
  WriteThreeSegments();
  Bytes(PathOf(1))[kLogPage + 40] ^= std::byte{1};
  Says(ReadError(), ErrorCode::kCorrupt, PathOf(1) + ": offset 4096: checksum");
}

TEST_F(LogTest, RefusesALogThatEndsBeforeItsMark) {
  WriteThreeSegments();
  std::vector<std::byte>& bytes = Bytes(PathOf(3));
  std::fill(bytes.end() - std::ptrdiff_t(bytes.size() - 2 * kLogPage), bytes.end(), std::byte{0});
  Says(ReadError(), ErrorCode::kCorrupt, "but record 30 was durable");
  Bytes(PathOf(3)).resize(kLogPage);
  Says(ReadError(), ErrorCode::kCorrupt, PathOf(3) + ": offset 4096: the log ends with record 20");
}

TEST_F(LogTest, RefusesALogThatEndsBeforeTheCallersRecord) {
  WriteThreeSegments();
  Says(ReadError({}, LogSequence(31)), ErrorCode::kCorrupt, "the log ends with record 30, but record 31 was durable");
}

TEST_F(LogTest, RefusesALogWithoutItsMark) {
  WriteThreeSegments();
  disk_.Remove(std::string(kDirectory) + "/mark");
  Says(ReadError(), ErrorCode::kNotFound, "mark");
}

TEST_F(LogTest, RefusesADamagedMark) {
  WriteThreeSegments();
  std::vector<std::byte>& mark = Bytes(std::string(kDirectory) + "/mark");
  mark[40] ^= std::byte{1};
  Kept kept;
  EXPECT_TRUE(Read(&kept)) << "the other page counts";
  mark[kLogPage + 40] ^= std::byte{1};
  Says(ReadError(), ErrorCode::kCorrupt, "mark: offset 0");
}

TEST_F(LogTest, RefusesMissingAndSwappedSegments) {
  WriteThreeSegments();
  disk_.Rename(PathOf(2), "elsewhere/2");
  Says(ReadError(), ErrorCode::kCorrupt, "segment-0000000002.log is missing");
  disk_.Rename(PathOf(3), PathOf(2));
  Says(ReadError(), ErrorCode::kCorrupt, "it is segment 3, expected 2: files were swapped");
  disk_.Rename("elsewhere/2", PathOf(3));
  Says(ReadError(), ErrorCode::kCorrupt, "files were swapped");
}

// Segments before the checkpoint are not needed; the next checkpoint removes them.
TEST_F(LogTest, ADamagedHeaderIsAnErrorOnlyIfItsSegmentIsNeeded) {
  WriteThreeSegments();
  for (const std::uint64_t segment : {1, 2}) {
    Bytes(PathOf(segment))[20] ^= std::byte{1};
    Says(ReadError(CheckpointId(0)), ErrorCode::kCorrupt, PathOf(segment) + ": offset 12: the header's checksum");
    Bytes(PathOf(segment))[20] ^= std::byte{1};
  }
  Bytes(PathOf(2))[20] ^= std::byte{1};
  Says(ReadError(CheckpointId(5)), ErrorCode::kCorrupt, PathOf(2) + ": offset 12: the header's checksum");
  Bytes(PathOf(1)).resize(7);
  Says(ReadError(CheckpointId(5)), ErrorCode::kCorrupt, PathOf(1) + ": offset 0: 7 bytes");
  Kept kept;
  ASSERT_TRUE(driver_.Recover(CheckpointId(6), {}, &kept));
  EXPECT_EQ(kept.records.size(), 10u);
  EXPECT_TRUE(kept.Right());
  driver_.Begin(CheckpointId(7));
  driver_.Drop(CheckpointId(7));
  ASSERT_TRUE(driver_.Commit(true));
  for (const std::uint64_t segment : {1, 2, 3}) EXPECT_EQ(disk_.Find(PathOf(segment)), nullptr);
  Kept after;
  ASSERT_TRUE(Read(&after, CheckpointId(7)));
  EXPECT_EQ(after.records.size(), 1u);
}

TEST_F(LogTest, RefusesTheLogOfAnotherShardRunOrJob) {
  WriteThreeSegments();
  Kept kept;
  auto with = [&](LogIdentity identity) {
    const auto tail = ReadLog(files_.get(), kDirectory, identity, {}, {}, kept);
    return tail ? Error{ErrorCode::kOk, ""} : tail.error();
  };
  Says(with({0x1234, 0xabcd, ShardId(2)}), ErrorCode::kWrongJob, "expected shard 2");
  Says(with({0x1235, 0xabcd, ShardId(3)}), ErrorCode::kWrongJob, "run 1235");
  EXPECT_EQ(with({0x1234, 0xabce, ShardId(3)}).code, ErrorCode::kWrongJob);
  // One segment is from another run.
  const auto header = EncodeSegmentHeader({{0x9999, 0xabcd, ShardId(3)}, 2, LogSequence(11), CheckpointId(5)});
  std::copy(header.begin(), header.end(), Bytes(PathOf(2)).begin());
  Says(ReadError(), ErrorCode::kWrongJob, PathOf(2) + ": the log of another run, 9999, expected 1234");
}

TEST_F(LogTest, RefusesAnOlderAndANewerFormat) {
  WriteThreeSegments();
  Bytes(PathOf(3))[8] = std::byte{1};
  Says(ReadError(), ErrorCode::kUnsupported,
       PathOf(3) + ": offset 8: format version 1, expected 2 to 3: an older tarn wrote it");
  Bytes(PathOf(3))[8] = std::byte{4};
  Says(ReadError(), ErrorCode::kUnsupported,
       PathOf(3) + ": offset 8: format version 4, expected 2 to 3: a newer tarn wrote it");
  // The mark may be of a newer format too, on either page.
  const std::string mark = std::string(kDirectory) + "/mark";
  for (const std::size_t page : {0, 1}) {
    Bytes(mark)[page * kLogPage + 8] = std::byte{4};
    Says(ReadError(), ErrorCode::kUnsupported,
         mark + ": page " + std::to_string(page) + ": offset 8: format version 4");
    Bytes(mark)[page * kLogPage + 8] = std::byte{3};
  }
}

// A refused log is unchanged, so that a program of its version can still continue from it.
TEST_F(LogTest, ANewLogDoesNotReplaceOneOfANewerFormat) {
  WriteThreeSegments();
  const std::string mark = std::string(kDirectory) + "/mark";
  for (const std::string& path : {mark, PathOf(1), PathOf(3)}) {
    Bytes(path)[8] = std::byte{4};
    const std::vector<std::string> before = disk_.Paths();
    const auto status = ClearForNewLog(files_.get(), kDirectory, kIdentity);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kAlreadyExists);
    EXPECT_NE(status.error().message.find(path + ": "), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("format version 4"), std::string::npos) << status.error().message;
    EXPECT_EQ(disk_.Paths(), before);
    Bytes(path)[8] = std::byte{3};
  }
}

// A damaged byte is an error, or all records are read in spite of it.
TEST_F(LogTest, EveryDamagedByteIsRefusedOrHarmless) {
  WriteThreeSegments();
  int refused = 0;
  for (const std::string& path : disk_.Paths()) {
    std::vector<std::byte>& bytes = Bytes(path);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == std::byte{0} && i % 97 != 0) continue;  // tests only a sample of the padding
      bytes[i] ^= std::byte{0x10};
      Kept kept;
      const auto tail = Read(&kept);
      bytes[i] ^= std::byte{0x10};
      if (tail) {
        ASSERT_EQ(kept.records.size(), 30u) << path << " byte " << i;
        ASSERT_TRUE(kept.Right());
      } else {
        ASSERT_NE(tail.error().message.find(kDirectory), std::string::npos);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST_F(LogTest, EveryTruncationIsRefused) {
  WriteThreeSegments();
  for (std::uint64_t segment : {1, 2, 3}) {
    const std::vector<std::byte> whole = Bytes(PathOf(segment));
    Kept kept;
    const std::uint64_t used = Read(&kept)->segments[segment - 1].bytes;
    for (std::size_t size = 0; size < used; size += 509) {
      Bytes(PathOf(segment)).resize(size);
      Kept part;
      const auto tail = Read(&part);
      // Without the padding of the last batch the log is still complete.
      EXPECT_TRUE(!tail || part.records.size() == 30) << segment << " at " << size;
    }
    Bytes(PathOf(segment)) = whole;
  }
}

TEST_F(LogTest, ANewLogDoesNotReplaceThatOfAnotherRun) {
  WriteThreeSegments();
  EXPECT_TRUE(ClearForNewLog(files_.get(), "elsewhere", kIdentity));
  const auto status = ClearForNewLog(files_.get(), kDirectory, {0x77, 0xabcd, ShardId(3)});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kAlreadyExists);
  EXPECT_NE(disk_.Find(PathOf(1)), nullptr);
  EXPECT_NE(disk_.Find(std::string(kDirectory) + "/mark"), nullptr);
  // Files that an earlier start of the same run left are removed.
  EXPECT_TRUE(ClearForNewLog(files_.get(), kDirectory, kIdentity));
  EXPECT_EQ(disk_.Find(PathOf(1)), nullptr);
}

TEST_F(LogTest, LargeRecordsSpanBatches) {
  ASSERT_TRUE(driver_.Open());
  driver_.Begin({});
  ASSERT_TRUE(driver_.Commit());
  std::vector<LogRecord> records;
  records.reserve(6);
  for (int i = 0; i < 5; ++i) records.push_back({Buffer::Allocate(10), {}, Buffer::Allocate(kLogBatchBytesMax / 2)});
  records.push_back({{}, {}, Buffer::Allocate(kLogBatchBytesMax + 1)});
  LogWriter writer(files_.get(), "elsewhere", kIdentity, {}, {});
  ASSERT_TRUE(writer.Start(true));
  ASSERT_TRUE(writer.BeginSegment({}));
  for (LogRecord& record : records)
    for (Buffer* part : {&record.head, &record.values})
      if (!part->empty()) std::memset(part->data(), 7, part->size());
  ASSERT_TRUE(writer.Write(records));
  ASSERT_TRUE(writer.Sync(true));
  Kept kept;
  ASSERT_TRUE(ReadLog(files_.get(), "elsewhere", kIdentity, {}, LogSequence(6), kept));
  ASSERT_EQ(kept.records.size(), 6u);
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(kept.records[i], TextOf(records[i]));
}

}  // namespace
}  // namespace tarn::server

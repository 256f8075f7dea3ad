// For tests of the log: a writer and a reader over files in memory, and numbered records.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hash.h"
#include "server/log/log_directory.h"
#include "server/log/log_queue.h"
#include "server/log/log_reader.h"
#include "server/log/log_writer.h"
#include "sim/disks/memory_files.h"

namespace tarn::server {

constexpr const char* kDirectory = "run/log/shard-3";
constexpr LogIdentity kIdentity{0x1234, 0xabcd, ShardId(3)};
constexpr SegmentFileOptions kSmall{
    .allocate_bytes = 5 * kLogPage, .prepare_bytes = 2 * kLogPage, .prepare_ahead_bytes = 3 * kLogPage};

// A record whose length and bytes are determined by its number.
inline LogRecord RecordOf(std::uint64_t number) {
  SplitMix random(number);
  LogRecord record;
  Buffer* const parts[] = {&record.head, &record.keys, &record.values};
  for (Buffer* part : parts) {
    *part = Buffer::Allocate(random.Below(number % 7 == 0 ? 9000 : 100));
    for (std::byte& byte : part->as_mutable<std::byte>()) byte = std::byte(random.Next());
  }
  return record;
}

inline std::string TextOf(const LogRecord& record) {
  std::string text;
  for (const Buffer* part : {&record.head, &record.keys, &record.values}) {
    text += std::to_string(part->size()) + ":";
    text.append(reinterpret_cast<const char*>(part->data()), part->size());
  }
  return text;
}

// Stores the records read.
struct Kept : LogSink {
  Status OnRecord(LogSequence sequence, bool is_head, LogRecord record) override {
    sequences.push_back(sequence);
    if (is_head) heads.push_back(sequence);
    records.push_back(TextOf(record));
    return {};
  }
  // Whether each record equals RecordOf(its sequence).
  bool Right() const {
    for (std::size_t i = 0; i < records.size(); ++i)
      if (records[i] != TextOf(RecordOf(sequences[i].value)) || sequences[i].value != sequences[0].value + i)
        return false;
    return true;
  }
  std::vector<LogSequence> sequences, heads;
  std::vector<std::string> records;
};

// Writes RecordOf(1), RecordOf(2), ... ; `durable`: the result that TakeSynced would have.
class Driver {
 public:
  explicit Driver(FileOps* files) : files_(files) {}

  Status Open() {
    TARN_RETURN_IF_ERROR(files_->MakeDirectory(kDirectory));
    TARN_RETURN_IF_ERROR(ClearForNewLog(files_, kDirectory, kIdentity));
    writer_.emplace(files_, kDirectory, kIdentity, LogTail{}, kSmall);
    return writer_->Start(true);
  }
  Status Recover(CheckpointId from, LogSequence at_least, Kept* kept) {
    auto tail = ReadLog(files_, kDirectory, kIdentity, from, at_least, *kept);
    if (!tail) return std::unexpected(tail.error());
    TARN_RETURN_IF_ERROR(RemoveTorn(files_, kDirectory, *tail));
    next_ = tail->last.value + 1;
    queue_.Start(tail->last);
    writer_.emplace(files_, kDirectory, kIdentity, std::move(*tail), kSmall);
    return writer_->Start(false);
  }
  void Begin(CheckpointId cut) {
    queue_.PushBegin(cut);
    Append(1);
  }
  void Append(int records) {
    for (int i = 0; i < records; ++i) queue_.Push(RecordOf(next_++));
  }
  void Drop(CheckpointId before) { queue_.PushDrop(before); }
  Status Write() { return WriteItems(queue_.TakeAll(), &*writer_); }
  Status Commit(bool sync_mark = false) {
    TARN_RETURN_IF_ERROR(Write());
    TARN_RETURN_IF_ERROR(writer_->Sync(sync_mark));
    durable_ = writer_->durable();
    return writer_->Prepare();
  }
  LogSequence durable() const { return durable_; }
  std::uint64_t written() const { return next_ - 1; }

 private:
  FileOps* files_;
  std::optional<LogWriter> writer_;
  LogQueue queue_;
  std::uint64_t next_ = 1;
  LogSequence durable_;
};

class LogTest : public testing::Test {
 protected:
  LogTest() : files_(MakeMemoryFileOps(&disk_)), driver_(files_.get()) {}

  Expected<LogTail> Read(Kept* kept, CheckpointId from = {}, LogSequence at_least = {}) {
    return ReadLog(files_.get(), kDirectory, kIdentity, from, at_least, *kept);
  }
  // Expects an error of reading and returns it.
  Error ReadError(CheckpointId from = {}, LogSequence at_least = {}) {
    Kept kept;
    const auto tail = Read(&kept, from, at_least);
    EXPECT_FALSE(tail.has_value());
    return tail ? Error{ErrorCode::kOk, ""} : tail.error();
  }
  static std::string PathOf(std::uint64_t segment) { return std::string(kDirectory) + "/" + SegmentName(segment); }
  std::vector<std::byte>& Bytes(const std::string& path) { return *disk_.Find(path); }
  // Three segments: the beginning, one at checkpoint 5, one at checkpoint 6; ten records each, in batches of a few.
  void WriteThreeSegments() {
    ASSERT_TRUE(driver_.Open());
    for (std::uint64_t cut : {0, 5, 6}) {
      driver_.Begin(CheckpointId(cut));
      for (int i = 0; i < 3; ++i) {
        driver_.Append(3);
        ASSERT_TRUE(driver_.Commit(true));
      }
    }
  }

  MemoryDisk disk_;
  std::unique_ptr<FileOps> files_;
  Driver driver_;
};

}  // namespace tarn::server

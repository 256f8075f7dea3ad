#include "server/log/log_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::server {

LogWriter::LogWriter(FileOps* files, std::string directory, const LogIdentity& identity, LogTail tail,
                     SegmentFileOptions options)
    : files_(files),
      directory_(std::move(directory)),
      identity_(identity),
      options_(options),
      segments_(std::move(tail.segments)),
      next_number_(tail.next_number),
      last_(tail.last),
      durable_(tail.last),
      unproven_(tail.unproven) {}

LogWriter::~LogWriter() = default;

Status LogWriter::BeginSegment(CheckpointId cut) {
  if (file_) {
    TARN_RETURN_IF_ERROR(Sync(true));
    TARN_RETURN_IF_ERROR(Trim());
    segments_.back().bytes = file_->end();
  }
  const SegmentHeader header{identity_, next_number_, LogSequence(last_.value + 1), cut};
  auto file = files_->Create(Path(SegmentName(next_number_)));
  if (!file) return std::unexpected(file.error());
  file_.emplace(*std::move(file), options_);
  names_changed_ = true;
  ++next_number_;
  segments_.push_back({header.number, cut, kLogPage});
  TARN_RETURN_IF_ERROR(file_->Begin(header, options_.allocate_bytes, kLogPage));
  return file_->Sync();  // a batch after a torn header would look like damage
}

Status LogWriter::Write(std::span<const LogRecord> records) {
  while (!records.empty()) {
    std::size_t count = 0, bytes = 0;
    while (count < records.size() && (count == 0 || bytes + records[count].bytes() <= kLogBatchBytesMax))
      bytes += records[count++].bytes();
    TARN_RETURN_IF_ERROR(WriteBatch(records.first(count)));
    records = records.subspan(count);
    if (!records.empty()) TARN_RETURN_IF_ERROR(Sync(false));
  }
  return {};
}

Status LogWriter::WriteBatch(std::span<const LogRecord> records) {
  const std::uint64_t before = file_->end();
  TARN_RETURN_IF_ERROR(file_->Write(LogSequence(last_.value + 1), records));
  written_ += file_->end() - before;
  segments_.back().bytes = file_->end();
  last_.value += records.size();
  return {};
}

Status LogWriter::Sync(bool sync_mark) {
  if (durable_ != last_ || names_changed_) {
    TARN_RETURN_IF_ERROR(file_->Sync());
    ++syncs_;
    if (names_changed_) TARN_RETURN_IF_ERROR(files_->SyncDirectory(directory_));
    names_changed_ = false;
  }
  durable_ = last_;
  return mark_->Write(durable_, sync_mark);
}

// Writes the mark before the first record, because a log without a mark counts as damaged.
Status LogWriter::Start(bool new_log) {
  auto file = new_log ? files_->Create(Path(kMarkName)) : files_->OpenToWrite(Path(kMarkName));
  if (!file) return std::unexpected(file.error());
  mark_.emplace(*std::move(file), identity_);
  if (!new_log) return unproven_ ? Rewrite(*unproven_) : Status();
  TARN_RETURN_IF_ERROR(mark_->Reserve());
  TARN_RETURN_IF_ERROR(mark_->Write(durable_, true));
  return files_->SyncDirectory(directory_);
}

// The rename replaces the old records atomically. Until then they must not change: they may be durable, and
// acknowledged after the mark was written.
Status LogWriter::Rewrite(const LogTail::Unproven& from) {
  const LogSegment old = segments_.back();
  const LogSequence last = last_;
  const bool whole = from.offset == kLogPage;
  const SegmentHeader header{identity_, whole ? old.number : next_number_, from.first, whole ? old.cut : kNoHead};
  const std::string path = Path(kRewrittenName);
  if (const auto removed = files_->Remove(path); !removed && removed.error().code != ErrorCode::kNotFound)
    return removed;
  auto file = files_->Create(path);
  if (!file) return std::unexpected(file.error());
  file_.emplace(*std::move(file), options_);
  if (whole) segments_.pop_back();
  segments_.push_back({header.number, header.cut, kLogPage});
  next_number_ = std::max(next_number_, header.number + 1);
  const std::uint64_t bytes = kLogPage + old.bytes - from.offset;
  TARN_RETURN_IF_ERROR(file_->Begin(header, bytes, bytes));
  last_ = LogSequence(from.first.value - 1);
  TARN_RETURN_IF_ERROR(CopyBatches(old, from.offset));
  if (last_ != last)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: it ends with record {} now, and with {} when it was read before",
                                                 Path(SegmentName(old.number)), last_.value, last.value));
  TARN_RETURN_IF_ERROR(file_->Sync());
  file_.reset();
  TARN_RETURN_IF_ERROR(files_->Rename(path, Path(SegmentName(header.number))));
  TARN_RETURN_IF_ERROR(files_->SyncDirectory(directory_));
  return mark_->Write(durable_, true);
}

Status LogWriter::CopyBatches(const LogSegment& segment, std::uint64_t from) {
  const std::string path = Path(SegmentName(segment.number));
  auto file = files_->OpenToRead(path);
  if (!file) return std::unexpected(file.error());
  while (from < segment.bytes) {
    const auto batch = ReadBatch(file->get(), path, segment.bytes, segment.number, from);
    if (!batch) return std::unexpected(batch.error());
    const auto records = DecodeBatch(batch->bytes);
    if (!records)
      return Fail(records.error().code, fmt::format("{}: offset {}: {}", path, from, records.error().message));
    TARN_RETURN_IF_ERROR(WriteBatch(*records));
    from += BatchFileBytes(batch->header);
  }
  return {};
}

Status LogWriter::DropBefore(CheckpointId cut) {
  const auto first = std::ranges::find(segments_, cut, &LogSegment::cut);
  if (first == segments_.end() || first == segments_.begin()) return {};
  while (segments_.front().cut != cut) {
    TARN_RETURN_IF_ERROR(files_->Remove(Path(SegmentName(segments_.front().number))));
    segments_.erase(segments_.begin());
  }
  return {};
}

std::uint64_t LogWriter::bytes() const {
  std::uint64_t sum = 0;
  for (const LogSegment& segment : segments_) sum += segment.bytes;
  return sum;
}

}  // namespace tarn::server

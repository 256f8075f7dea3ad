#include "server/log/log_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/crc32c.h"

namespace tarn::server {
namespace {

constexpr std::array<std::byte, kLogPage> kZeros{};

}  // namespace

LogWriter::LogWriter(FileOps* files, std::string directory, const LogIdentity& identity, LogTail tail,
                     LogWriterOptions options)
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
    segments_.back().bytes = end_;
  }
  const SegmentHeader header{identity_, next_number_, LogSequence(last_.value + 1), cut};
  auto file = files_->Create(Path(SegmentName(next_number_)));
  if (!file) return std::unexpected(file.error());
  file_ = std::move(*file);
  names_changed_ = true;
  ++next_number_;
  allocated_ = 0;
  TARN_RETURN_IF_ERROR(Reserve(options_.allocate_bytes, kLogPage));
  segments_.push_back({header.number, cut, kLogPage});
  TARN_RETURN_IF_ERROR(WriteHeader(header));
  return file_->Sync();  // a batch after a torn header would look like damage
}

// On a full disk a segment reserves only the space that it needs. A checkpoint begins a segment, and the unused space
// of the previous one was freed.
Status LogWriter::Reserve(std::uint64_t bytes, std::uint64_t least) {
  const auto reserved = file_->Allocate(bytes, least);
  if (!reserved) return std::unexpected(reserved.error());
  allocated_ = *reserved;
  return {};
}

Status LogWriter::WriteHeader(const SegmentHeader& header) {
  end_ = prepared_ = kLogPage;
  const auto bytes = EncodeSegmentHeader(header);
  const std::span<const std::byte> parts[] = {bytes, std::span(kZeros).first(kLogPage - bytes.size())};
  return file_->Write(0, parts);
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
  BatchHeader batch{.first = LogSequence(last_.value + 1),
                    .segment = static_cast<std::uint32_t>(segments_.back().number),
                    .records = static_cast<std::uint32_t>(records.size())};
  std::vector<std::array<std::byte, kRecordHeaderBytes>> heads;
  heads.reserve(records.size());
  for (const LogRecord& record : records) {
    heads.push_back(EncodeRecordHeader(record));
    batch.bytes += kRecordHeaderBytes + record.bytes();
  }
  auto header = EncodeBatchHeader(batch);
  batch.crc = BatchHeaderCrc(header);
  std::vector<std::span<const std::byte>> parts = {header};
  auto add = [&](std::span<const std::byte> part) {
    batch.crc = Crc32c(part, batch.crc);
    parts.push_back(part);
  };
  for (std::size_t i = 0; i < records.size(); ++i) {
    add(heads[i]);
    for (const Buffer* part : {&records[i].head, &records[i].keys, &records[i].values})
      if (!part->empty()) add({part->data(), part->size()});
  }
  header = EncodeBatchHeader(batch);
  const std::uint64_t bytes = BatchFileBytes(batch);
  parts.push_back(std::span(kZeros).first(bytes - kBatchHeaderBytes - batch.bytes));
  if (const std::uint64_t needed = PageUp(end_ + bytes); needed > allocated_) {
    // Reserves whole steps until one fails. After that only the needed space, because other programs may need the rest
    // of the disk.
    const std::uint64_t step = options_.allocate_bytes;
    const bool scarce = allocated_ % step != 0;
    TARN_RETURN_IF_ERROR(Reserve(scarce ? needed : (needed + step - 1) / step * step, needed));
  }
  TARN_RETURN_IF_ERROR(file_->Write(end_, parts));
  end_ += bytes;
  written_ += bytes;
  segments_.back().bytes = end_;
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
  return WriteMark(sync_mark);
}

// Writes the mark before the first record, because a log without a mark counts as damaged.
Status LogWriter::Start(bool new_log) {
  auto mark = new_log ? files_->Create(Path(kMarkName)) : files_->OpenToWrite(Path(kMarkName));
  if (!mark) return std::unexpected(mark.error());
  mark_ = std::move(*mark);
  if (!new_log) return unproven_ ? Rewrite(*unproven_) : Status();
  if (const auto reserved = mark_->Allocate(2 * kLogPage, 2 * kLogPage); !reserved)
    return std::unexpected(reserved.error());
  TARN_RETURN_IF_ERROR(WriteMark(true));
  return files_->SyncDirectory(directory_);
}

// The rename replaces the old records atomically. Until then they must not change: they may be durable, and
// acknowledged after the mark was written.
Status LogWriter::Rewrite(const LogTail::Unproven& from) {
  const LogSegment old = segments_.back();
  const LogSequence last = last_;
  const bool whole = from.offset == kLogPage;
  const SegmentHeader header{identity_, whole ? old.number : next_number_, from.first, whole ? old.cut : kGoesOn};
  const std::string path = Path(kRewrittenName);
  if (const auto removed = files_->Remove(path); !removed && removed.error().code != ErrorCode::kNotFound)
    return removed;
  auto file = files_->Create(path);
  if (!file) return std::unexpected(file.error());
  file_ = std::move(*file);
  if (whole) segments_.pop_back();
  segments_.push_back({header.number, header.cut, kLogPage});
  next_number_ = std::max(next_number_, header.number + 1);
  const std::uint64_t bytes = kLogPage + old.bytes - from.offset;
  TARN_RETURN_IF_ERROR(Reserve(bytes, bytes));
  last_ = LogSequence(from.first.value - 1);
  TARN_RETURN_IF_ERROR(WriteHeader(header));
  TARN_RETURN_IF_ERROR(CopyBatches(old, from.offset));
  if (last_ != last)
    return Fail(ErrorCode::kCorrupt, fmt::format("{}: it ends with record {} now, and with {} when it was read before",
                                                 Path(SegmentName(old.number)), last_.value, last.value));
  TARN_RETURN_IF_ERROR(file_->Sync());
  file_.reset();
  TARN_RETURN_IF_ERROR(files_->Rename(path, Path(SegmentName(header.number))));
  TARN_RETURN_IF_ERROR(files_->SyncDirectory(directory_));
  return WriteMark(true);
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

Status LogWriter::WriteMark(bool sync) {
  const auto bytes = EncodeMark(identity_, durable_);
  const std::span<const std::byte> parts[] = {bytes};
  TARN_RETURN_IF_ERROR(mark_->Write(static_cast<std::uint64_t>(mark_slot_) * kLogPage, parts));
  mark_slot_ ^= 1;
  return sync ? mark_->Sync() : Status();
}

Status LogWriter::Prepare() {
  if (!file_) return {};
  prepared_ = std::max(prepared_, end_);
  const std::uint64_t ahead = std::min(options_.prepare_ahead_bytes, end_);
  const std::uint64_t until = std::min(allocated_, prepared_ + std::min(options_.prepare_bytes, PageUp(ahead)));
  if (prepared_ - end_ >= ahead || until <= prepared_) return {};
  TARN_RETURN_IF_ERROR(file_->Prepare(prepared_, until - prepared_));
  prepared_ = until;
  return {};
}

Status LogWriter::Trim() { return file_ ? file_->Truncate(end_) : Status(); }

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

#include "server/log/log_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "core/crc32c.h"

namespace tarn::server {
namespace {

struct Segment {
  std::string path;
  std::unique_ptr<LogFile> file;  // open while it is read
  std::uint64_t size = 0;
  SegmentHeader header;
  Status readable;  // an error: the file or its header cannot be read
};

std::unexpected<Error> Corrupt(const std::string& path, std::uint64_t offset, const std::string& what) {
  return Fail(ErrorCode::kCorrupt, fmt::format("{}: offset {}: {}", path, offset, what));
}

Status Open(FileOps* files, Segment* segment) {
  auto file = files->OpenToRead(segment->path);
  if (!file) return std::unexpected(file.error());
  segment->file = std::move(*file);
  const auto size = segment->file->Size();
  if (!size) return std::unexpected(size.error());
  segment->size = *size;
  return {};
}

Expected<SegmentHeader> ReadHeader(const Segment& segment) {
  std::byte bytes[kSegmentHeaderBytes];
  const auto got = segment.file->Read(0, bytes);
  if (!got) return std::unexpected(got.error());
  auto header = DecodeSegmentHeader(std::span(bytes).first(*got));
  if (!header) return Fail(header.error().code, segment.path + ": " + header.error().message);
  return header;
}

// Checks that a valid header belongs to this log, and to the segment that the file's name states.
Status CheckHeader(const std::string& path, const SegmentHeader& header, std::uint64_t number,
                   const LogIdentity& identity) {
  const LogIdentity& theirs = header.identity;
  auto wrong = [&](const char* what, std::uint64_t is, std::uint64_t expected) {
    return Fail(ErrorCode::kWrongJob, fmt::format("{}: the log of {} {:x}, expected {:x}", path, what, is, expected));
  };
  if (theirs.job != identity.job) return wrong("another job, fingerprint", theirs.job, identity.job);
  if (theirs.run != identity.run) return wrong("another run,", theirs.run, identity.run);
  if (theirs.shard != identity.shard) return wrong("another shard,", theirs.shard.value, identity.shard.value);
  if (header.number != number)
    return Corrupt(path, 32, fmt::format("it is segment {}, expected {}: files were swapped", header.number, number));
  return {};
}

Expected<LogBatch> ReadBatch(const Segment& segment, std::uint64_t offset) {
  return server::ReadBatch(segment.file.get(), segment.path, segment.size, segment.header.number, offset);
}

// Reads the segments in order and passes their records to the sink.
class Reading {
 public:
  Reading(FileOps* files, std::string directory, const LogIdentity& identity, LogSink& sink)
      : files_(files), directory_(std::move(directory)), identity_(identity), sink_(sink) {}

  Expected<LogTail> Read(CheckpointId from, LogSequence at_least) {
    TARN_RETURN_IF_ERROR(ReadMark());
    TARN_RETURN_IF_ERROR(OpenAll());
    TARN_RETURN_IF_ERROR(FindStart(from));
    for (std::size_t i = start_; i < segments_.size(); ++i) TARN_RETURN_IF_ERROR(ReadSegment(i));
    const LogSequence wanted = std::max(mark_, at_least);
    if (tail_.last < wanted)
      return Corrupt(end_path_, end_offset_,
                     fmt::format("the log ends with record {}, but record {} was durable: its end is damaged or cut "
                                 "off",
                                 tail_.last.value, wanted.value));
    NoteUnproven();
    return std::move(tail_);
  }

 private:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  Status ReadMark() {
    const std::string path = Path(kMarkName);
    auto file = files_->OpenToRead(path);
    if (!file) return std::unexpected(file.error());
    std::optional<Mark> newest;
    for (std::uint64_t slot = 0; slot < 2; ++slot) {
      std::byte bytes[kMarkBytes];
      const auto got = (*file)->Read(slot * kLogPage, bytes);
      if (!got) return std::unexpected(got.error());
      const auto mark = DecodeMark(std::span(bytes).first(*got));
      if (!mark && mark.error().code == ErrorCode::kUnsupported)
        return Fail(ErrorCode::kUnsupported, fmt::format("{}: page {}: {}", path, slot, mark.error().message));
      if (mark && (!newest || mark->durable > newest->durable)) newest = *mark;
    }
    if (!newest)
      return Corrupt(path, 0,
                     "neither of its two pages is a valid mark: expected \"TARNMARK\" and a matching checksum");
    if (newest->identity != identity_)
      return Fail(ErrorCode::kWrongJob,
                  fmt::format("{}: the mark of shard {}, run {:x}, job {:x}; expected shard {}, run {:x}, job {:x}",
                              path, newest->identity.shard.value, newest->identity.run, newest->identity.job,
                              identity_.shard.value, identity_.run, identity_.job));
    mark_ = newest->durable;
    return {};
  }

  // Reads the headers of all segments. The newest segment may contain nothing durable. An error in another segment
  // counts only if that segment is needed, which FindStart determines.
  Status OpenAll() {
    auto names = files_->List(directory_);
    if (!names) return std::unexpected(names.error());
    for (const std::string& name : *names) {
      const auto number = SegmentNumber(name);
      if (!number) continue;
      Segment segment{.path = Path(name)};
      segment.header = {.identity = identity_, .number = *number, .first = {}, .cut = ShardLog::kContinues};
      segment.readable = Open(files_, &segment);
      if (segment.readable) {
        const auto header = ReadHeader(segment);
        if (!header && header.error().code == ErrorCode::kCorrupt && IsLast(*names, name)) {
          TARN_RETURN_IF_ERROR(CheckTornHeader(segment, name, header.error()));
          continue;
        }
        segment.readable =
            header ? CheckHeader(segment.path, *header, *number, identity_) : Status(std::unexpected(header.error()));
        if (segment.readable) segment.header = *header;
      }
      if (!segment.readable && IsForeign(segment.readable.error())) return segment.readable;
      segment.file.reset();
      tail_.segments.push_back({*number, segment.header.cut, segment.size});
      segments_.push_back(std::move(segment));
      tail_.next_number = *number + 1;
    }
    return {};
  }

  // The file is intact but belongs to another log.
  static bool IsForeign(const Error& error) {
    return error.code == ErrorCode::kWrongJob || error.code == ErrorCode::kUnsupported;
  }

  static bool IsLast(const std::vector<std::string>& names, const std::string& name) {
    return std::none_of(names.begin(), names.end(),
                        [&](const std::string& other) { return other > name && SegmentNumber(other).has_value(); });
  }

  // The last segment has no valid header. It is torn if it contains no valid batch.
  Status CheckTornHeader(const Segment& segment, const std::string& name, const Error& why) {
    const auto good = FindValidBatch(segment, kLogPage, LogSequence(0));
    if (!good) return std::unexpected(good.error());
    if (*good != 0)
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}; a valid batch follows at offset {}, so the header was durable", why.message, *good));
    tail_.torn.push_back(name);
    return {};
  }

  Status FindStart(CheckpointId from) {
    const auto is_start = [&](const Segment& segment) { return segment.readable && segment.header.cut == from; };
    const auto found = std::find_if(segments_.begin(), segments_.end(), is_start);
    if (found == segments_.end()) {
      for (const Segment& segment : segments_) TARN_RETURN_IF_ERROR(segment.readable);
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: no segment begins at checkpoint {}: it is missing, or never became durable, or a "
                              "newer checkpoint has replaced it and this scheduler.state is an older one",
                              directory_, from.value));
    }
    start_ = static_cast<std::size_t>(found - segments_.begin());
    for (std::size_t i = start_ + 1; i < segments_.size(); ++i) {
      TARN_RETURN_IF_ERROR(segments_[i].readable);
      if (const std::uint64_t next = segments_[i - 1].header.number + 1; segments_[i].header.number != next)
        return Fail(ErrorCode::kCorrupt, fmt::format("{}: {} is missing", directory_, SegmentName(next)));
    }
    tail_.last = LogSequence(found->header.first.value - 1);
    return {};
  }

  Status ReadSegment(std::size_t index) {
    Segment& segment = segments_[index];
    TARN_RETURN_IF_ERROR(Open(files_, &segment));
    if (segment.header.first.value != tail_.last.value + 1)
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("{}: it begins with record {}, but {} ends with {} at offset {}", segment.path,
                              segment.header.first.value, end_path_, tail_.last.value, end_offset_));
    const bool last = index + 1 == segments_.size();
    const LogSequence until(last ? UINT64_MAX : segments_[index + 1].header.first.value - 1);
    std::uint64_t offset = kLogPage;
    end_path_ = segment.path;
    while (tail_.last < until) {
      end_offset_ = offset;
      if (last && tail_.last <= mark_) after_mark_ = {offset, LogSequence(tail_.last.value + 1)};
      auto batch = ReadBatch(segment, offset);
      if (!batch) {
        if (batch.error().code != ErrorCode::kCorrupt) return std::unexpected(batch.error());
        if (!last) return std::unexpected(batch.error());  // the next segment follows it, so it was durable
        TARN_RETURN_IF_ERROR(CheckTorn(segment, offset, batch.error()));
        break;
      }
      TARN_RETURN_IF_ERROR(PassRecords(segment, offset, *batch));
      offset += BatchFileBytes(batch->header);
    }
    tail_.segments[index].bytes = offset;
    end_offset_ = offset;
    segment.file.reset();
    return {};
  }

  Status PassRecords(const Segment& segment, std::uint64_t offset, const LogBatch& batch) {
    if (batch.header.first.value != tail_.last.value + 1)
      return Corrupt(
          segment.path, offset,
          fmt::format("the batch begins with record {}, expected {}", batch.header.first.value, tail_.last.value + 1));
    auto records = DecodeBatch(batch.bytes);
    if (!records) return Corrupt(segment.path, offset, records.error().message);
    for (LogRecord& record : *records) {
      const LogSequence sequence(tail_.last.value + 1);
      const bool begins = sequence == segment.header.first && segment.header.cut != kNoHead;
      if (auto status = sink_.OnRecord(sequence, begins, std::move(record)); !status)
        return Fail(status.error().code, fmt::format("{}: offset {}: record {}: {}", segment.path, offset,
                                                     sequence.value, status.error().message));
      tail_.last = sequence;
    }
    return {};
  }

  // After a kill or a failed sync, data may be readable but not on the disk, and a second sync does not help: Linux
  // marks pages as clean that it could not write. All segments but the last are durable, because the writer syncs a
  // segment before it begins the next. In the last segment the records up to the mark are durable.
  void NoteUnproven() {
    if (segments_.empty()) return;
    const Segment& last = segments_.back();
    if (last.header.first > mark_)
      tail_.unproven = {kLogPage, last.header.first};
    else if (tail_.last > mark_)
      tail_.unproven = after_mark_;
  }

  Status CheckTorn(const Segment& segment, std::uint64_t offset, const Error& why) {
    const auto good = FindValidBatch(segment, offset + kLogPage, tail_.last);
    if (!good) return std::unexpected(good.error());
    if (*good == 0) return {};
    return Fail(ErrorCode::kCorrupt,
                fmt::format("{}; a good batch lies behind it, at offset {}: this one was durable", why.message, *good));
  }

  // The offset of a valid batch, at `offset` or later, whose records follow `after`; 0: none.
  Expected<std::uint64_t> FindValidBatch(const Segment& segment, std::uint64_t offset, LogSequence after) const {
    for (; offset < segment.size; offset += kLogPage) {
      const auto batch = ReadBatch(segment, offset);
      if (batch && batch->header.first > after) return offset;
      if (!batch && batch.error().code != ErrorCode::kCorrupt) return std::unexpected(batch.error());
    }
    return 0;
  }

  FileOps* files_;
  std::string directory_;
  LogIdentity identity_;
  LogSink& sink_;
  std::vector<Segment> segments_;
  std::size_t start_ = 0;
  LogSequence mark_;
  LogTail::Unproven after_mark_;  // the first batch of the last segment with records above the mark
  LogTail tail_;
  std::string end_path_;
  std::uint64_t end_offset_ = 0;
};

}  // namespace

Expected<LogBatch> ReadBatch(LogFile* file, const std::string& path, std::uint64_t size, std::uint64_t segment,
                             std::uint64_t offset) {
  std::byte header[kBatchHeaderBytes];
  const auto got = file->Read(offset, header);
  if (!got) return std::unexpected(got.error());
  const auto batch = DecodeBatchHeader(std::span(header).first(*got));
  if (!batch) return Corrupt(path, offset, "no batch begins here");
  const std::uint64_t room = size - offset;
  if (batch->bytes > room || kBatchHeaderBytes + batch->bytes > room)
    return Corrupt(path, offset, fmt::format("a batch of {} bytes, but the file has {} here", batch->bytes, room));
  if (batch->segment != static_cast<std::uint32_t>(segment))
    return Corrupt(
        path, offset,
        fmt::format("a batch of segment {}, expected segment {}", batch->segment, static_cast<std::uint32_t>(segment)));
  const std::uint64_t most = kLogBatchBytesMax + std::uint64_t{batch->records} * kRecordHeaderBytes;
  if (batch->records != 1 && batch->bytes > most)
    return Corrupt(
        path, offset,
        fmt::format("a batch of {} bytes, expected at most {} for {} records", batch->bytes, most, batch->records));
  LogBatch out{*batch, std::vector<std::byte>(kBatchHeaderBytes + batch->bytes)};
  const auto all = file->Read(offset, out.bytes);
  if (!all) return std::unexpected(all.error());
  const std::uint32_t sum = Crc32c(std::span(out.bytes).subspan(kBatchHeaderBytes), BatchHeaderCrc(out.bytes));
  if (*all != out.bytes.size() || sum != batch->crc)
    return Corrupt(path, offset, fmt::format("checksum {:08x}, expected {:08x}", sum, batch->crc));
  return out;
}

Expected<std::vector<LogRecord>> DecodeBatch(std::span<const std::byte> bytes) {
  const auto header = DecodeBatchHeader(bytes);
  if (!header || header->bytes > bytes.size() - kBatchHeaderBytes)
    return Fail(ErrorCode::kCorrupt, "no complete batch");
  bytes = bytes.subspan(kBatchHeaderBytes, header->bytes);
  std::vector<LogRecord> records;
  while (!bytes.empty()) {
    std::uint32_t sizes[3];
    static_assert(sizeof sizes == kRecordHeaderBytes);
    if (bytes.size() < sizeof sizes) return Fail(ErrorCode::kCorrupt, "the sizes of a record extend beyond the batch");
    std::memcpy(sizes, bytes.data(), sizeof sizes);
    bytes = bytes.subspan(sizeof sizes);
    LogRecord& record = records.emplace_back();
    Buffer* const parts[] = {&record.head, &record.keys, &record.values};
    for (std::size_t i = 0; i < 3; ++i) {
      if (bytes.size() < sizes[i])
        return Fail(ErrorCode::kCorrupt, fmt::format("record {} of the batch extends beyond it", records.size()));
      *parts[i] = Buffer::Copy(bytes.data(), sizes[i]);
      bytes = bytes.subspan(sizes[i]);
    }
  }
  if (records.size() != header->records)
    return Fail(ErrorCode::kCorrupt,
                fmt::format("the batch has {} records, expected {}", records.size(), header->records));
  return records;
}

Expected<LogTail> ReadLog(FileOps* files, const std::string& directory, const LogIdentity& identity, CheckpointId from,
                          LogSequence at_least, LogSink& sink) {
  return Reading(files, directory, identity, sink).Read(from, at_least);
}

}  // namespace tarn::server

#include "server/log/segment_file.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/crc32c.h"

namespace tarn::server {
namespace {

constexpr std::array<std::byte, kLogPage> kZeros{};

}  // namespace

Status SegmentFile::Begin(const SegmentHeader& header, std::uint64_t bytes, std::uint64_t least) {
  number_ = static_cast<std::uint32_t>(header.number);
  TARN_RETURN_IF_ERROR(Reserve(bytes, least));
  end_ = prepared_ = kLogPage;
  const auto encoded = EncodeSegmentHeader(header);
  const std::span<const std::byte> parts[] = {encoded, std::span(kZeros).first(kLogPage - encoded.size())};
  return file_->Write(0, parts);
}

// Reserves only `least` if the disk has less space than `bytes`. A checkpoint can therefore begin a segment on a full
// disk: Trim has just freed the space that the previous segment had reserved but not used.
Status SegmentFile::Reserve(std::uint64_t bytes, std::uint64_t least) {
  const auto reserved = file_->Allocate(bytes, least);
  if (!reserved) return std::unexpected(reserved.error());
  allocated_ = *reserved;
  return {};
}

// Reserves whole steps until the disk has too little space for one. After that it reserves only the needed space,
// because other programs may need the rest of the disk.
Status SegmentFile::ReserveFor(std::uint64_t bytes) {
  const std::uint64_t needed = PageUp(end_ + bytes), step = options_.allocate_bytes;
  if (needed <= allocated_) return {};
  const bool scarce = allocated_ % step != 0;
  return Reserve(scarce ? needed : (needed + step - 1) / step * step, needed);
}

Status SegmentFile::Write(LogSequence first, std::span<const LogRecord> records) {
  BatchHeader batch{.first = first, .segment = number_, .records = static_cast<std::uint32_t>(records.size())};
  std::vector<std::array<std::byte, kRecordHeaderBytes>> record_headers;
  record_headers.reserve(records.size());
  for (const LogRecord& record : records) {
    record_headers.push_back(EncodeRecordHeader(record));
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
    add(record_headers[i]);
    for (const Buffer* part : {&records[i].head, &records[i].keys, &records[i].values})
      if (!part->empty()) add({part->data(), part->size()});
  }
  header = EncodeBatchHeader(batch);
  const std::uint64_t bytes = BatchFileBytes(batch);
  parts.push_back(std::span(kZeros).first(bytes - kBatchHeaderBytes - batch.bytes));
  TARN_RETURN_IF_ERROR(ReserveFor(bytes));
  TARN_RETURN_IF_ERROR(file_->Write(end_, parts));
  end_ += bytes;
  return {};
}

Status SegmentFile::Prepare() {
  prepared_ = std::max(prepared_, end_);
  const std::uint64_t ahead = std::min(options_.prepare_ahead_bytes, end_);
  const std::uint64_t until = std::min(allocated_, prepared_ + std::min(options_.prepare_bytes, PageUp(ahead)));
  if (prepared_ - end_ >= ahead || until <= prepared_) return {};
  TARN_RETURN_IF_ERROR(file_->WriteZeros(prepared_, until - prepared_));
  prepared_ = until;
  return {};
}

}  // namespace tarn::server

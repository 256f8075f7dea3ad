#include "server/log/log_format.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstring>

#include "core/crc32c.h"

namespace tarn::server {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied without conversion");

constexpr char kSegmentMagic[8] = {'T', 'A', 'R', 'N', 'L', 'O', 'G', '\n'};
constexpr char kMarkMagic[8] = {'T', 'A', 'R', 'N', 'M', 'A', 'R', 'K'};
constexpr std::uint32_t kBatchMagic = 0x74614274;  // "tBat"
constexpr std::size_t kFileSumAt = 12;             // after magic and version
constexpr std::size_t kFileHeaderBytes = 16;       // with the checksum
constexpr std::size_t kBatchSummedFrom = 8;        // after magic and checksum
constexpr std::string_view kPrefix = "segment-", kSuffix = ".log";

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <typename T>
  Writer& Put(const T& value) {
    std::memcpy(out_.data() + at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

template <typename T>
T At(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The checksum of a segment's header or of a mark: of all bytes except the field that stores it.
std::uint32_t FileHeaderCrc(std::span<const std::byte> bytes) {
  return Crc32c(bytes.subspan(kFileHeaderBytes), Crc32c(bytes.first(kFileSumAt)));
}

void FinishFileHeader(const char (&magic)[8], std::span<std::byte> bytes) {
  Writer(bytes).Put(magic).Put(kLogVersion);
  Writer(bytes.subspan(kFileSumAt)).Put(FileHeaderCrc(bytes));
}

Status CheckVersion(std::span<const std::byte> bytes) {
  const auto version = At<std::uint32_t>(bytes, 8);
  if (version >= kLogVersionMin && version <= kLogVersion) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("offset 8: format version {}, expected {} to {}{}", version, kLogVersionMin, kLogVersion,
                          version > kLogVersion ? ": a newer tarn wrote it" : ": an older tarn wrote it"));
}

}  // namespace

std::string SegmentName(std::uint64_t number) { return fmt::format("{}{:010}{}", kPrefix, number, kSuffix); }

std::optional<std::uint64_t> SegmentNumber(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number == 0) return std::nullopt;
  return number;
}

std::array<std::byte, kSegmentHeaderBytes> EncodeSegmentHeader(const SegmentHeader& header) {
  std::array<std::byte, kSegmentHeaderBytes> bytes{};
  Writer(std::span(bytes).subspan(kFileHeaderBytes))
      .Put(header.identity.run)
      .Put(header.identity.job)
      .Put(header.number)
      .Put(header.first.value)
      .Put(header.cut.value)
      .Put(header.identity.shard.value);
  FinishFileHeader(kSegmentMagic, bytes);
  return bytes;
}

Expected<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kSegmentHeaderBytes)
    return Fail(ErrorCode::kCorrupt, fmt::format("offset 0: {} bytes, expected a segment's header of {}", bytes.size(),
                                                 kSegmentHeaderBytes));
  bytes = bytes.first(kSegmentHeaderBytes);
  if (std::memcmp(bytes.data(), kSegmentMagic, sizeof kSegmentMagic) != 0)
    return Fail(ErrorCode::kCorrupt, "offset 0: not a log segment: expected it to begin with \"TARNLOG\"");
  TARN_RETURN_IF_ERROR(CheckVersion(bytes));
  const auto expected = At<std::uint32_t>(bytes, kFileSumAt), sum = FileHeaderCrc(bytes);
  if (sum != expected)
    return Fail(ErrorCode::kCorrupt,
                fmt::format("offset 12: the header's checksum is {:08x}, expected {:08x}", sum, expected));
  SegmentHeader header;
  header.identity = {At<std::uint64_t>(bytes, 16), At<std::uint64_t>(bytes, 24), ShardId(At<std::uint32_t>(bytes, 56))};
  header.number = At<std::uint64_t>(bytes, 32);
  header.first = LogSequence(At<std::uint64_t>(bytes, 40));
  header.cut = CheckpointId(At<std::uint64_t>(bytes, 48));
  return header;
}

std::array<std::byte, kBatchHeaderBytes> EncodeBatchHeader(const BatchHeader& batch) {
  std::array<std::byte, kBatchHeaderBytes> bytes{};
  Writer(bytes)
      .Put(kBatchMagic)
      .Put(batch.crc)
      .Put(batch.bytes)
      .Put(batch.first.value)
      .Put(batch.segment)
      .Put(batch.records);
  return bytes;
}

std::uint32_t BatchHeaderCrc(std::span<const std::byte> header) {
  return Crc32c(header.first(kBatchHeaderBytes).subspan(kBatchSummedFrom));
}

std::optional<BatchHeader> DecodeBatchHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kBatchHeaderBytes || At<std::uint32_t>(bytes, 0) != kBatchMagic) return std::nullopt;
  return BatchHeader{.crc = At<std::uint32_t>(bytes, 4),
                     .bytes = At<std::uint64_t>(bytes, 8),
                     .first = LogSequence(At<std::uint64_t>(bytes, 16)),
                     .segment = At<std::uint32_t>(bytes, 24),
                     .records = At<std::uint32_t>(bytes, 28)};
}

std::array<std::byte, kRecordHeaderBytes> EncodeRecordHeader(const LogRecord& record) {
  std::array<std::byte, kRecordHeaderBytes> bytes;
  Writer(bytes)
      .Put(static_cast<std::uint32_t>(record.head.size()))
      .Put(static_cast<std::uint32_t>(record.keys.size()))
      .Put(static_cast<std::uint32_t>(record.values.size()));
  return bytes;
}

std::array<std::byte, kMarkBytes> EncodeMark(const LogIdentity& identity, LogSequence durable) {
  std::array<std::byte, kMarkBytes> bytes{};
  Writer(std::span(bytes).subspan(kFileHeaderBytes))
      .Put(identity.run)
      .Put(identity.job)
      .Put(identity.shard.value)
      .Put(std::uint32_t{0})
      .Put(durable.value);
  FinishFileHeader(kMarkMagic, bytes);
  return bytes;
}

Expected<Mark> DecodeMark(std::span<const std::byte> bytes) {
  if (bytes.size() < kMarkBytes || std::memcmp(bytes.data(), kMarkMagic, sizeof kMarkMagic) != 0)
    return Fail(ErrorCode::kCorrupt, "not a mark: expected it to begin with \"TARNMARK\"");
  bytes = bytes.first(kMarkBytes);
  TARN_RETURN_IF_ERROR(CheckVersion(bytes));
  const auto expected = At<std::uint32_t>(bytes, kFileSumAt), sum = FileHeaderCrc(bytes);
  if (sum != expected)
    return Fail(ErrorCode::kCorrupt, fmt::format("the mark's checksum is {:08x}, expected {:08x}", sum, expected));
  return Mark{{At<std::uint64_t>(bytes, 16), At<std::uint64_t>(bytes, 24), ShardId(At<std::uint32_t>(bytes, 32))},
              LogSequence(At<std::uint64_t>(bytes, 40))};
}

}  // namespace tarn::server

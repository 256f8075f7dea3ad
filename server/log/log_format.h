// The file format of a shard's log, shared by the writer and the reader. All numbers are little-endian.
//
// <directory>/segment-0000000001.log and so on: segments. The header and each batch begin at a multiple of kLogPage, so
// that sectors with durable contents are never written again. Unused parts are zero.
//
//   page 0       8 bytes "TARNLOG\n", version (32 bits), CRC-32C of these 12 and the following 48 bytes (32 bits), run,
//                job, number of the segment, first sequence, checkpoint at whose cut it begins (64 bits each), shard
//                and 0 (32 bits each)
//   then batches: magic (32 bits), CRC-32C of the rest of the header and of the records (32), bytes of the records with
//                their sizes (64), first sequence (64), low half of the segment's number (32), number of records (32);
//                then for each record the sizes of head, keys and values (32 each), and their bytes; then zeros up to
//                the next page
//
// <directory>/mark: two pages, written alternately: "TARNMARK", version, CRC-32C of these 12 and the following 32
// bytes, run, job, shard, 0, the newest sequence that was durable when it was written. Of the pages with a correct
// checksum, the one with the higher sequence counts.
//
// <directory>/LOCK: locked by the process that writes.
//
// A batch is durable before the next is written. So an invalid batch before a valid one is damaged, not torn.
//
// A segment whose checkpoint is kNoHead has no head. It repeats the last records of the previous segment, and readers
// skip those records in the previous segment. It is written as "rewritten.tmp" and renamed when it is durable.
//
// Versions 2 and 3 are read; in 2 all pushes are steps. Version 1, which stored the options of all update rules in each
// table, is rejected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/log/shard_log.h"

namespace tarn::server {

inline constexpr std::uint32_t kLogVersion = 3;
inline constexpr std::uint32_t kLogVersionMin = 2;
inline constexpr std::size_t kLogPage = 4096;
inline constexpr std::size_t kSegmentHeaderBytes = 64;
inline constexpr std::size_t kBatchHeaderBytes = 32;
inline constexpr std::size_t kRecordHeaderBytes = 12;
inline constexpr std::size_t kMarkBytes = 48;
// Maximum bytes of the records of one batch, unless it is a single larger record. Bounds the memory of a reader.
inline constexpr std::size_t kLogBatchBytesMax = std::size_t{8} << 20;

struct SegmentHeader {
  LogIdentity identity;
  std::uint64_t number = 0;  // 1, 2, ...
  LogSequence first;
  CheckpointId cut;  // the checkpoint at whose cut it begins; ShardLog::kContinues or kNoHead: no recovery starts here
};

struct BatchHeader {
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;  // of the records, with their sizes (kRecordHeaderBytes each)
  LogSequence first;
  std::uint32_t segment = 0;  // low half of the segment's number
  std::uint32_t records = 0;
};

inline std::uint64_t PageUp(std::uint64_t bytes) { return (bytes + kLogPage - 1) / kLogPage * kLogPage; }
// Size of a batch in the file.
inline std::uint64_t BatchFileBytes(const BatchHeader& batch) { return PageUp(kBatchHeaderBytes + batch.bytes); }

std::string SegmentName(std::uint64_t number);
// The number of a segment by its file name; nullopt for other files.
std::optional<std::uint64_t> SegmentNumber(std::string_view name);
inline constexpr const char* kMarkName = "mark";
inline constexpr const char* kRewrittenName = "rewritten.tmp";
// SegmentHeader::cut of a segment without a head.
inline constexpr CheckpointId kNoHead{UINT64_MAX - 1};
inline constexpr const char* kLockName = "LOCK";

std::array<std::byte, kSegmentHeaderBytes> EncodeSegmentHeader(const SegmentHeader& header);
// kUnsupported: another version; kCorrupt: not a segment, or damaged. The caller adds the file's name to the message.
Expected<SegmentHeader> DecodeSegmentHeader(std::span<const std::byte> bytes);

// Encodes the header with the checksum `batch.crc`, which the caller computes (BatchHeaderCrc).
std::array<std::byte, kBatchHeaderBytes> EncodeBatchHeader(const BatchHeader& batch);
// CRC-32C of the header after the checksum field. The checksum of the batch continues over the records.
std::uint32_t BatchHeaderCrc(std::span<const std::byte> header);
// Returns nullopt if it is not a header of a batch. Does not check the records.
std::optional<BatchHeader> DecodeBatchHeader(std::span<const std::byte> bytes);

std::array<std::byte, kRecordHeaderBytes> EncodeRecordHeader(const LogRecord& record);

std::array<std::byte, kMarkBytes> EncodeMark(const LogIdentity& identity, LogSequence durable);
struct Mark {
  LogIdentity identity;
  LogSequence durable;
};
// kUnsupported: another version; kCorrupt: not a mark, or damaged. The caller adds the file's name to the message.
Expected<Mark> DecodeMark(std::span<const std::byte> bytes);

}  // namespace tarn::server

// The file format of an export for serving, version 1: parameters without optimizer state. A full export has all rows
// of a checkpoint, a delta those that have changed since another checkpoint. Designed to be mapped into memory: nothing
// is compressed, arrays are aligned, and a key is found with two binary searches.
//
//   header    64 bytes, little-endian:
//               0  "TARNEXPT"
//               8  format version (32 bits)
//              12  CRC-32 of bytes 16..63 (32 bits)
//              16  offset of the index (64 bits)
//              24  bytes of the index (64 bits)
//              32  CRC-32 of the index (32 bits), then 32 bits of 0
//              40  bytes of the file (64 bits)
//              48  0 (128 bits)
//   sections  each at a multiple of 64: keys of rows (64 bits each, ascending), keys of removed rows (64 bits each,
//             ascending), values (rows x dim, fp32, bf16 or fp16). Only a delta has keys of removed rows.
//   index     a FlatBuffer (schemas/export.fbs): tables, sections with their checksums, and the source
//
// Checksums are CRC-32, as zlib computes it. The header's checksum does not cover the version field: readers accept
// only version 1, so a damaged field is rejected. The checksum of a later version must cover the field. The writer and
// the readers share this header.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/table/table_spec.h"

namespace tarn::serving {

static_assert(std::endian::native == std::endian::little, "arrays are written little-endian");

inline constexpr char kExportMagic[8] = {'T', 'A', 'R', 'N', 'E', 'X', 'P', 'T'};
inline constexpr std::uint32_t kExportVersion = 1;
inline constexpr std::size_t kExportAlignment = 64;

struct ExportHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t crc32;  // of the header's following bytes
  std::uint64_t index_offset;
  std::uint64_t index_bytes;
  std::uint32_t index_crc32;
  std::uint32_t zero;
  std::uint64_t file_bytes;
  std::uint64_t zeros[2];
};
static_assert(sizeof(ExportHeader) == 64);
inline constexpr std::size_t kHeaderSummedFrom = 16;

inline std::uint32_t Crc32(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  while (!bytes.empty()) {
    const std::size_t piece = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
    sum = static_cast<std::uint32_t>(
        ::crc32(sum, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(piece)));
    bytes = bytes.subspan(piece);
  }
  return sum;
}

inline std::size_t CodecBytes(ValueCodec codec) { return codec == ValueCodec::kFp32 ? 4 : 2; }

}  // namespace tarn::serving

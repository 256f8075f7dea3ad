// Keys of sparse features: (column + 1) << 48 | value, with 48-bit values that practically never collide within a
// column, so keys are not hashed to the size of a table.
//
// Columns count from 0, integer columns first, then categorical ones; the + 1 keeps key 0 unused. Values:
//
//   bit 47 set            a 47-bit hash: of a category that is not eight lower-case hexadecimal digits, or of an
//                         integer of magnitude 2^45 or more
//   kMissingValue         the field was empty
//   bit 46 set            kBinBase + bin: an integer above 2 under the log2 rule
//   otherwise             a category of eight lower-case hexadecimal digits as its 32-bit number; an integer,
//                         zigzag-coded; or the index of a libsvm feature, below 2^47
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/hash.h"
#include "core/types.h"

namespace tarn::worker {

inline constexpr int kValueBits = 48;
inline constexpr std::uint64_t kHashedFlag = 1ULL << 47;
inline constexpr std::uint64_t kMissingValue = kHashedFlag - 1;
inline constexpr std::uint64_t kBinBase = 1ULL << 46;

// The column in its place within a key. Columns are below limits::kColumnsMax, so that 16 bits hold them.
constexpr Key ColumnBits(std::uint32_t column) { return static_cast<Key>(column + 1) << kValueBits; }

// Integers of magnitude below 2^45 are encoded exactly (0, -1, 1, -2, ... as 0, 1, 2, 3, ...), others are hashed.
constexpr std::uint64_t IntegerValue(std::int64_t v) {
  constexpr std::int64_t kExact = 1LL << 45;
  if (v <= -kExact || v >= kExact) [[unlikely]]
    return kHashedFlag | (Mix64(static_cast<std::uint64_t>(v)) >> 17);
  return (static_cast<std::uint64_t>(v) << 1) ^ static_cast<std::uint64_t>(v >> 63);
}

// Parses eight lower-case hexadecimal digits at `text`; false if there are other characters. Reads 8 bytes.
inline bool ParseHex8(const char* text, std::uint32_t* out) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
  std::uint64_t word = 0;
  std::memcpy(&word, text, 8);
  std::uint64_t digits = (word & (kOnes * 0x0f)) + ((word >> 6) & kOnes) * 9;
  // Encodes the digits again and compares, which rejects every other byte.
  const std::uint64_t letters = ((digits + kOnes * 6) >> 4) & kOnes;
  if (digits + kOnes * '0' + letters * ('a' - '0' - 10) != word || (digits & (kOnes * 0xf0)) != 0) return false;
  digits = __builtin_bswap64(digits);
  digits = (digits | digits >> 4) & 0x00ff00ff00ff00ffULL;
  digits = (digits | digits >> 8) & 0x0000ffff0000ffffULL;
  *out = static_cast<std::uint32_t>(digits | digits >> 16);
  return true;
}

// A category's value: "" is missing, eight lower-case hexadecimal digits are their number, the rest is hashed.
inline std::uint64_t CategoryValue(std::string_view text) {
  std::uint32_t number = 0;
  if (text.size() == 8 && ParseHex8(&text.front(), &number)) return number;
  if (text.empty()) return kMissingValue;
  return kHashedFlag | (HashBytes(text) >> 17);
}

}  // namespace tarn::worker

// The envelope of small state files, which identifies the format and detects damage. The header before the body: 8
// bytes of magic, then little-endian format version (32 bits), CRC-32C of all other bytes (32 bits), size of the body
// (64 bits). Before version whole_sum_from the CRC-32C covers only the bytes after it. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn {

struct SealedFormat {
  std::string_view magic;                // 8 bytes
  std::string_view what;                 // for errors: "a checkpoint's manifest"
  std::uint32_t oldest = 1, newest = 1;  // versions that are read; the newest is written
  std::uint32_t whole_sum_from = 1;      // from this version on, the checksum covers magic and version too
};

// Returns the header, followed by `body`.
std::string Seal(const SealedFormat& format, std::string_view body);

inline constexpr std::size_t kSealBytes = 24;  // of the header
// The same in place: writes the header into the first kSealBytes of `sealed`; the caller has placed the body after it.
void SealInPlace(const SealedFormat& format, std::span<std::byte> sealed);

// Size of the header and body at the beginning of `bytes`, as the header states it; bytes.size() if truncated.
std::size_t SealedSize(std::string_view bytes);

struct Unsealed {
  std::uint32_t version = 0;
  std::vector<std::uint64_t> words;  // the body, aligned for FlatBuffers, which are read in place
  std::size_t size = 0;
  std::span<const std::uint8_t> body() const { return {reinterpret_cast<const std::uint8_t*>(words.data()), size}; }
};

// kUnsupported: another version. kCorrupt: truncated, damaged or another format. The message begins with `origin` and
// names what was found and what was expected.
Expected<Unsealed> Unseal(const SealedFormat& format, std::string_view bytes, const std::string& origin);

}  // namespace tarn

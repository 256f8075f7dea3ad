// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected; RFC 3720 appendix B.4): the checksum of stored bytes. Uses the
// processor's instruction if available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tarn {

// Continues the checksum `before` (0: none) over `bytes`. Any thread.
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

inline std::uint32_t Crc32c(std::string_view bytes, std::uint32_t before = 0) {
  return Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())), before);
}

namespace internal {
// The two implementations, for tests. HardwareCrc32c requires HasHardwareCrc32c().
bool HasHardwareCrc32c();
std::uint32_t HardwareCrc32c(std::span<const std::byte> bytes, std::uint32_t before);
std::uint32_t TableCrc32c(std::span<const std::byte> bytes, std::uint32_t before);
}  // namespace internal

}  // namespace tarn

// Sealed files in the previous format, whose checksum does not cover magic and version.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "core/crc32c.h"

namespace tarn {

// `bytes` of a sealed file as that version would have written it.
inline std::string SealedBefore(std::string bytes, std::uint32_t version) {
  const std::uint32_t sum = Crc32c(std::string_view(bytes).substr(16));
  std::memcpy(bytes.data() + 8, &version, sizeof version);
  std::memcpy(bytes.data() + 12, &sum, sizeof sum);
  return bytes;
}

// Calls see(bytes, index) for each byte of the envelope and each other value of it.
template <typename See>
void ForEveryDamagedHeader(const std::string& bytes, See see) {
  for (std::size_t at = 0; at < 24; ++at)
    for (int flip = 1; flip < 256; ++flip) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      see(damaged, at);
    }
}

}  // namespace tarn

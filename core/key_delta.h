// The sizes of delta-coded key lists (format: kernels/key_delta.h), for checks before they are decoded.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace tarn {

inline constexpr std::size_t kKeyBlock = 32;  // keys of a block
inline constexpr std::size_t kKeySlack = 8;   // zero bytes after the last block

// The maximum and the minimum size of n coded keys.
constexpr std::size_t DeltaBytesMax(std::size_t n) {
  return (n + kKeyBlock - 1) / kKeyBlock * 9 + n * sizeof(Key) + kKeySlack;
}
constexpr std::size_t DeltaBytesMin(std::size_t n) { return (n + kKeyBlock - 1) / kKeyBlock * 9 + kKeySlack; }

}  // namespace tarn

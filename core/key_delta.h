// The sizes of delta-coded lists of keys (kernels/key_delta.h has the format), for those who check them unread.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace tarn {

inline constexpr std::size_t kKeyBlock = 32;
inline constexpr std::size_t kKeySlack = 8;

// The most bytes that n coded keys take, and the fewest.
constexpr std::size_t DeltaBytesMax(std::size_t n) {
  return (n + kKeyBlock - 1) / kKeyBlock * 9 + n * sizeof(Key) + kKeySlack;
}
constexpr std::size_t DeltaBytesMin(std::size_t n) { return (n + kKeyBlock - 1) / kKeyBlock * 9 + kKeySlack; }

}  // namespace tarn

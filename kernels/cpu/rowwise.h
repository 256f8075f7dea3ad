// Shared by the loops over rows: prefetching, and loops whose width is a compile-time constant for common widths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tarn::kernels {

inline constexpr std::size_t kRowsAhead = 8;  // covers a miss of the last-level cache at 10 to 20 ns per row

// Prefetches the first cache lines of a row; the hardware prefetches the rest.
inline void PrefetchRow(const float* row, std::size_t dim) {
  constexpr std::size_t kLineFloats = 16;
  constexpr std::size_t kFloatsMax = 8 * kLineFloats;
  for (std::size_t j = 0; j < dim && j < kFloatsMax; j += kLineFloats) __builtin_prefetch(row + j, 1);
}

// Calls f(width), where `width` is `dim`, as a compile-time constant if it is a common width: for a short row, calling
// memcpy or setting up a loop costs more than processing the row.
template <typename F>
[[gnu::always_inline]] inline void WithWidth(std::uint32_t dim, F f) {
  switch (dim) {
    case 1: return f(std::integral_constant<std::uint32_t, 1>{});
    case 4: return f(std::integral_constant<std::uint32_t, 4>{});
    case 8: return f(std::integral_constant<std::uint32_t, 8>{});
    case 16: return f(std::integral_constant<std::uint32_t, 16>{});
    case 32: return f(std::integral_constant<std::uint32_t, 32>{});
    case 64: return f(std::integral_constant<std::uint32_t, 64>{});
    default: return f(dim);
  }
}

}  // namespace tarn::kernels

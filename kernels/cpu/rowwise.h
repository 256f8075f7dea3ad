// What the loops over rows share: fetching rows before they are needed, and loops over a width that the compiler
// knows for the widths that are common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tarn::kernels {

inline constexpr std::size_t kRowsAhead = 8;  // enough to cover a miss of the last cache at 10-20 ns a row

// Asks for the first cache lines of a row; the hardware follows the rest by itself.
inline void PrefetchRow(const float* row, std::size_t dim) {
  constexpr std::size_t kLineFloats = 16;
  constexpr std::size_t kFloatsMax = 8 * kLineFloats;
  for (std::size_t j = 0; j < dim && j < kFloatsMax; j += kLineFloats) __builtin_prefetch(row + j, 1);
}

// Calls f(width) with `dim` as a compile-time constant where it is a common one: a call of memcpy or a loop's
// set-up costs more than a short row.
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

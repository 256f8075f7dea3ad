#pragma once
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  if (std::isnan(v)) return {0x7fff};
  const auto bits = __builtin_bit_cast(std::uint32_t, v);
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline float __bfloat162float(__nv_bfloat16 v) { return __builtin_bit_cast(float, std::uint32_t{v.bits} << 16); }
inline std::uint16_t __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(std::uint16_t v) { return {v}; }

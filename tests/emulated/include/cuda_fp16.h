#pragma once
#include "tests/emulated/kernel.h"

struct __half {
  std::uint16_t bits;
};
inline __half __float2half_rn(float v) { return {emulated::HalfOf(v)}; }
inline float __half2float(__half v) { return emulated::FloatOf(v.bits); }
inline std::uint16_t __half_as_ushort(__half v) { return v.bits; }
inline __half __ushort_as_half(std::uint16_t v) { return {v}; }

// bf16 conversion of single values, and the random words of stochastic rounding. Loops over arrays are in
// kernels/convert.h and kernels/half_rows.h.
#pragma once

#include <bit>
#include <cstdint>

namespace tarn {

// bf16: the upper half of an fp32 (8 bits of exponent, 7 of fraction). Narrowing rounds to nearest, ties to even; NaN
// stays NaN with its sign and the upper bits of its payload; a signalling NaN becomes quiet. Widening is exact.
constexpr std::uint16_t Bf16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t((bits >> 16) | 0x40u);
  return std::uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float FloatFromBf16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t(half) << 16); }

// Word i of the random stream of a seed.
constexpr std::uint32_t ChanceWord(std::uint64_t seed, std::uint32_t i) {
  std::uint32_t x = std::uint32_t(seed) + i * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x ^= std::uint32_t(seed >> 32);
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

}  // namespace tarn

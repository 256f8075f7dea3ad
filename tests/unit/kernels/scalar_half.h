// Simple scalar implementations of the 16-bit formats. Tests compare kernels/convert.h and kernels/half_rows.h with
// them, and compute expected values with them.
#pragma once

#include <bit>
#include <cstdint>

#include "core/half.h"

namespace tarn {

// fp16: IEEE 754 binary16 (5 bits of exponent, 10 of fraction; largest 65504, smallest 2^-24). Narrowing rounds to
// nearest, ties to even; beyond the largest value it gives infinity, as IEEE 754 and the x86 and ARM instructions do.
constexpr std::uint16_t Fp16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return std::uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x47800000u) return std::uint16_t(sign | 0x7c00u);  // 2^16 and above, infinity
  if (magnitude >= 0x38800000u) {                                      // 2^-14 and above: normal
    const std::uint32_t rebiased = magnitude - (std::uint32_t{127 - 15} << 23);
    return std::uint16_t(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
  }
  if (magnitude <= 0x33000000u) return std::uint16_t(sign);  // up to 2^-25: a tie with zero, or less
  const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift = 126u - (magnitude >> 23);  // 14..24: drops to units of 2^-24
  const std::uint32_t half = fraction >> shift;
  const std::uint32_t rest = fraction & ((1u << shift) - 1u);
  const std::uint32_t tie = 1u << (shift - 1u);
  const bool up = rest > tie || (rest == tie && (half & 1u) != 0);
  return std::uint16_t(sign | (half + (up ? 1u : 0u)));
}

constexpr float FloatFromFp16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float magnitude = float(fraction) * 0x1p-24f;  // exact
  return sign != 0 ? -magnitude : magnitude;
}

// Narrowing by chance: of the two neighbours of a value, the farther from zero with a probability that makes the mean
// the value itself (Gupta, Agrawal, Gopalakrishnan, Narayanan, ICML 2015), decided by `random`, a uniform word. What
// the format has stays what it is, and what is beyond its largest number becomes that: chance makes no infinity.
constexpr std::uint16_t Bf16ByChance(float value, std::uint32_t random) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return Bf16FromFloat(value);
  std::uint32_t half = (magnitude + (random & 0xffffu)) >> 16;
  if (half > 0x7f7fu) half = 0x7f7fu;
  return std::uint16_t(((bits >> 16) & 0x8000u) | half);
}

constexpr std::uint16_t Fp16ByChance(float value, std::uint32_t random) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return Fp16FromFloat(value);
  if (magnitude >= 0x38800000u) {  // 2^-14 and above: normal
    const std::uint32_t half = (magnitude - 0x38000000u + (random & 0x1fffu)) >> 13;
    return std::uint16_t(sign | (half > 0x7bffu ? 0x7bffu : half));
  }
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;  // in units of the smallest, exact
  const std::uint32_t whole = std::uint32_t(scaled);
  const float rest = scaled - float(whole);
  return std::uint16_t(sign | (whole + (float(random >> 8) * 0x1p-24f < rest ? 1u : 0u)));
}

}  // namespace tarn

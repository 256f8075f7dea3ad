// Conversions between fp32 and the two 16-bit formats that values may travel in. Narrowing rounds to nearest, ties
// to even; beyond the largest value it gives infinity, as IEEE 754 and the x86 and ARM instructions do. NaN stays
// NaN with its sign and the upper bits of its payload; a signalling NaN becomes quiet. Widening is exact.
#pragma once

#include <bit>
#include <cstdint>

namespace tarn {

// bf16: the upper half of an fp32 (8 bits of exponent, 7 of fraction).
constexpr std::uint16_t Bf16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t((bits >> 16) | 0x40u);
  return std::uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float FloatFromBf16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t(half) << 16); }

// fp16: IEEE 754 binary16 (5 bits of exponent, 10 of fraction; largest 65504, smallest 2^-24).
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

}  // namespace tarn

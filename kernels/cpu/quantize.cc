#include "kernels/quantize.h"

#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

// The largest magnitude, as bits; NaN and infinity compare above all others.
std::uint32_t LargestMagnitude(std::uint32_t dim, const float* HWY_RESTRICT row) {
  std::uint32_t largest = 0;
  for (std::uint32_t j = 0; j < dim; ++j) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(row[j]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

void EncodeRow(std::uint32_t dim, const float* HWY_RESTRICT row, std::int8_t* HWY_RESTRICT out, float factor) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  for (std::uint32_t j = 0; j < dim; ++j) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(row[j] * factor + kRound);
    out[j] = static_cast<std::int8_t>(bits);
  }
}

// The scale: NaN for a row with a value that is not finite, 0 for a row so small that 127 / largest would be infinite.
// A value that is rounded up must not decode to infinity.
float ScaleOf(std::uint32_t largest) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  if (largest >= kInfinity) return std::bit_cast<float>(0x7fc00000u);
  const float factor = 127.0f / std::bit_cast<float>(largest);
  if (std::bit_cast<std::uint32_t>(factor) >= kInfinity) return 0.0f;
  const float scale = std::bit_cast<float>(largest) / 127.0f;
  const bool fits = std::bit_cast<std::uint32_t>(scale * 127.0f) < kInfinity;
  return fits ? scale : std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) - 1);
}

void Encode(std::uint32_t dim, std::size_t n, const float* in, std::byte* out, std::int8_t* tile) {
  for (std::size_t i = 0; i < n; ++i, in += dim, out += Int8RowBytes(dim)) {
    const std::uint32_t largest = LargestMagnitude(dim, in);
    const float scale = ScaleOf(largest);
    if (scale > 0.0f) {
      EncodeRow(dim, in, tile, 127.0f / std::bit_cast<float>(largest));
    } else {
      std::memset(tile, 0, dim);  // 0 * NaN is NaN
    }
    std::memcpy(out, &scale, sizeof(scale));
    std::memcpy(out + sizeof(scale), tile, dim);
  }
}

void Decode(std::uint32_t dim, std::size_t n, const std::byte* in, float* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i, in += Int8RowBytes(dim), out += dim) {
    float scale;
    std::memcpy(&scale, in, sizeof(scale));
    const auto* HWY_RESTRICT bytes = reinterpret_cast<const std::int8_t*>(in + sizeof(scale));
    for (std::uint32_t j = 0; j < dim; ++j) out[j] = scale * static_cast<float>(bytes[j]);
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Encode);
HWY_EXPORT(Decode);

void EncodeInt8Rows(std::uint32_t dim, std::size_t n, const float* in, std::byte* out) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  std::int8_t tile[limits::kRowDimMax];
  HWY_DYNAMIC_DISPATCH(Encode)(dim, n, in, out, tile);
}

void DecodeInt8Rows(std::uint32_t dim, std::size_t n, const std::byte* in, float* out) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  HWY_DYNAMIC_DISPATCH(Decode)(dim, n, in, out);
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE

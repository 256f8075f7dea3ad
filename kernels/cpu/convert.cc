#include "kernels/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/half.h"
#include "kernels/low_bits.h"
#include "kernels/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

// fp16 and rounding use integers and exact float operations and no branches, so that the loops become vectors on every
// instruction set.
HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

void ToBf16(std::size_t n, const float* HWY_RESTRICT in, std::uint16_t* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = Bf16FromFloat(in[i]);
}

void FromBf16(std::size_t n, const std::uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = FloatFromBf16(in[i]);
}

void RoundBf16(std::size_t n, const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  constexpr std::uint32_t kKept = 0xffff0000u;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    out[i] = std::bit_cast<float>((is_nan ? bits | 0x400000u : rounded) & kKept);
  }
}

void ToFp16(std::size_t n, const float* HWY_RESTRICT in, std::uint16_t* HWY_RESTRICT out) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  constexpr std::uint32_t kOverflow = 0x47800000u;   // 65536: from 65520 on the rounding below carries to infinity
  constexpr std::uint32_t kNormalMin = 0x38800000u;  // 2^-14
  constexpr float kSubnormalShift = 0.5f;            // adding it leaves multiples of 2^-24 in the low bits
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kSubnormalShift) - 0x3f000000u;
    const std::uint32_t special = magnitude > kInfinity ? 0x7e00u | ((magnitude >> 13) & 0x1ffu) : 0x7c00u;
    std::uint32_t half = magnitude < kNormalMin ? subnormal : normal;
    half = magnitude >= kOverflow ? special : half;
    out[i] = static_cast<std::uint16_t>(sign | half);
  }
}

void FromFp16(std::size_t n, const std::uint16_t* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  constexpr float kSubnormalOne = 0x1.0p-14f;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t half = in[i];
    const std::uint32_t sign = (half & 0x8000u) << 16;
    const std::uint32_t shifted = (half & 0x7fffu) << 13;
    const std::uint32_t exponent = shifted & 0x0f800000u;
    const std::uint32_t normal = shifted + 0x38000000u;
    const std::uint32_t special = shifted + 0x70000000u;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(shifted + 0x38800000u) - kSubnormalOne);
    std::uint32_t bits = exponent == 0 ? subnormal : normal;
    bits = exponent == 0x0f800000u ? special : bits;
    out[i] = std::bit_cast<float>(sign | bits);
  }
}

// Finite, and at least 65520: halfway to the number that would follow the largest one.
HWY_INLINE bool IsBeyondFp16(float value) {
  constexpr std::uint32_t kFirst = 0x477ff000u, kInfinity = 0x7f800000u;
  return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) - kFirst < kInfinity - kFirst;
}

std::size_t FirstBeyond(std::size_t n, const float* in) {
  std::uint32_t some = 0;
  for (std::size_t i = 0; i < n; ++i) some |= IsBeyondFp16(in[i]) ? 1u : 0u;
  if (some == 0) return n;
  std::size_t first = 0;
  while (!IsBeyondFp16(in[first])) ++first;
  return first;
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(ToBf16);
HWY_EXPORT(FromBf16);
HWY_EXPORT(ToFp16);
HWY_EXPORT(FromFp16);
HWY_EXPORT(FirstBeyond);
HWY_EXPORT(RoundBf16);

void FloatToBf16(std::size_t n, const float* in, std::uint16_t* out) { HWY_DYNAMIC_DISPATCH(ToBf16)(n, in, out); }
void Bf16ToFloat(std::size_t n, const std::uint16_t* in, float* out) { HWY_DYNAMIC_DISPATCH(FromBf16)(n, in, out); }
void FloatToFp16(std::size_t n, const float* in, std::uint16_t* out) { HWY_DYNAMIC_DISPATCH(ToFp16)(n, in, out); }
void Fp16ToFloat(std::size_t n, const std::uint16_t* in, float* out) { HWY_DYNAMIC_DISPATCH(FromFp16)(n, in, out); }
std::size_t FirstBeyondFp16(std::size_t n, const float* in) { return HWY_DYNAMIC_DISPATCH(FirstBeyond)(n, in); }
void RoundToBf16(std::size_t n, const float* in, float* out) { HWY_DYNAMIC_DISPATCH(RoundBf16)(n, in, out); }

namespace {
constexpr std::size_t kTile = 1024;  // values copied through aligned memory at a time
}

void EncodeRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, std::byte* out) {
  if (IsPlain(codec)) return EncodeValues(codec, n * dim, in, out);
  if (n * dim == 0) return;
  if (IsLowBits(codec)) return EncodeLowBits(codec, dim, n, in, out);
  EncodeInt8Rows(dim, n, in, out);
}

void DecodeRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* in, float* out) {
  if (IsPlain(codec)) return DecodeValues(codec, n * dim, in, out);
  if (n * dim == 0) return;
  if (IsLowBits(codec)) return DecodeLowBits(codec, dim, n, in, out);
  DecodeInt8Rows(dim, n, in, out);
}

void EncodeValues(ValueCodec codec, std::size_t n, const float* in, std::byte* out) {
  TARN_CHECK(IsPlain(codec), "the codec is plain (IsPlain)");
  if (n == 0) return;
  if (codec == ValueCodec::kFp32) {
    std::memcpy(out, in, n * sizeof(float));
    return;
  }
  std::uint16_t tile[kTile];
  for (std::size_t i = 0; i < n; i += kTile) {
    const std::size_t count = std::min(kTile, n - i);
    if (codec == ValueCodec::kBf16)
      FloatToBf16(count, in + i, tile);
    else
      FloatToFp16(count, in + i, tile);
    std::memcpy(out + 2 * i, tile, 2 * count);
  }
}

void DecodeValues(ValueCodec codec, std::size_t n, const std::byte* in, float* out) {
  TARN_CHECK(IsPlain(codec), "the codec is plain (IsPlain)");
  if (n == 0) return;
  if (codec == ValueCodec::kFp32) {
    std::memcpy(out, in, n * sizeof(float));
    return;
  }
  std::uint16_t tile[kTile];
  for (std::size_t i = 0; i < n; i += kTile) {
    const std::size_t count = std::min(kTile, n - i);
    std::memcpy(tile, in + 2 * i, 2 * count);
    if (codec == ValueCodec::kBf16)
      Bf16ToFloat(count, tile, out + i);
    else
      Fp16ToFloat(count, tile, out + i);
  }
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE

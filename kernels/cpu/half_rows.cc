#include "kernels/half_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/half.h"
#include "core/limits.h"
#include "kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/half_rows.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

// Without branches, so that the loops become vectors.
HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

HWY_INLINE std::uint32_t Pick(bool first, std::uint32_t a, std::uint32_t b) { return first ? a : b; }

HWY_INLINE std::uint16_t ToBf16(float value, std::uint32_t random) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = (magnitude + (random & 0xffffu)) >> 16;
  half = Pick(half > 0x7f7fu, 0x7f7fu, half);
  const std::uint32_t special = (magnitude >> 16) | Pick(magnitude > 0x7f800000u, 0x40u, 0u);
  half = Pick(magnitude >= 0x7f800000u, special, half);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | half);
}

HWY_INLINE std::uint16_t ToFp16(float value, std::uint32_t random) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t normal = (magnitude - 0x38000000u + (random & 0x1fffu)) >> 13;
  normal = Pick(normal > 0x7bffu, 0x7bffu, normal);
  // Values that are not subnormal are clamped, so that the conversion is defined; the result is not used for them.
  const std::uint32_t small = Pick(magnitude < 0x38800000u, magnitude, 0u);
  const float scaled = std::bit_cast<float>(small) * 0x1p24f;
  const std::int32_t whole = static_cast<std::int32_t>(scaled);
  const float rest = scaled - static_cast<float>(whole);
  const float chance = static_cast<float>(static_cast<std::int32_t>(random >> 8)) * 0x1p-24f;
  const std::uint32_t subnormal = static_cast<std::uint32_t>(whole) + Pick(chance < rest, 1u, 0u);
  const std::uint32_t special = Pick(magnitude > 0x7f800000u, 0x7e00u | ((magnitude >> 13) & 0x1ffu), 0x7c00u);
  std::uint32_t half = Pick(magnitude < 0x38800000u, subnormal, normal);
  half = Pick(magnitude >= 0x7f800000u, special, half);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | half);
}

void NarrowBf16(std::uint32_t dim, const float* HWY_RESTRICT in, std::uint64_t seed, std::uint16_t* HWY_RESTRICT out) {
  for (std::uint32_t j = 0; j < dim; ++j) out[j] = ToBf16(in[j], ChanceWord(seed, j));
}

void NarrowFp16(std::uint32_t dim, const float* HWY_RESTRICT in, std::uint64_t seed, std::uint16_t* HWY_RESTRICT out) {
  for (std::uint32_t j = 0; j < dim; ++j) out[j] = ToFp16(in[j], ChanceWord(seed, j));
}

void Narrow(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, const std::uint64_t* seeds,
            std::uint16_t* const* rows) {
  for (std::size_t i = 0; i < n; ++i)
    codec == ValueCodec::kBf16 ? NarrowBf16(dim, in + i * dim, seeds[i], rows[i])
                               : NarrowFp16(dim, in + i * dim, seeds[i], rows[i]);
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Narrow);

void WidenRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::uint16_t* const* rows, float* out) {
  for (std::size_t i = 0; i < n; ++i)
    codec == ValueCodec::kBf16 ? Bf16ToFloat(dim, rows[i], out + i * dim) : Fp16ToFloat(dim, rows[i], out + i * dim);
}

void NarrowRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, const std::uint64_t* seeds,
                std::uint16_t* const* rows) {
  HWY_DYNAMIC_DISPATCH(Narrow)(codec, dim, n, in, seeds, rows);
}

void NearestRow(ValueCodec codec, std::uint32_t dim, const float* in, std::uint16_t* row) {
  const float largest = codec == ValueCodec::kFp16 ? 65504.0f : std::bit_cast<float>(0x7f7f0000u);
  float clamped[limits::kRowDimMax];
  for (std::uint32_t j = 0; j < dim; ++j)
    clamped[j] = std::isfinite(in[j]) ? std::clamp(in[j], -largest, largest) : in[j];
  EncodeValues(codec, dim, clamped, reinterpret_cast<std::byte*>(row));
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE

#include "kernels/low_bits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/error.h"
#include "core/hash.h"
#include "core/limits.h"

namespace tarn::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLevels = 7;  // of kQsgd: a code is a sign and three bits

std::uint32_t Negative(float x) { return std::bit_cast<std::uint32_t>(x) >> 31; }

// Uniform random numbers in [0, 1) with 24 bits, from a hash of the row.
class Chance {
 public:
  Chance(std::uint32_t dim, const float* row)
      : state_(HashBytes({reinterpret_cast<const char*>(row), dim * sizeof(float)})) {}
  float Next() {
    if (left_ == 0) {
      word_ = Mix64(state_ += 0x9e3779b97f4a7c15ULL);
      left_ = 2;
    }
    --left_;
    const auto bits = static_cast<std::uint32_t>(word_ & 0xffffff);
    word_ >>= 32;
    return static_cast<float>(bits) * 0x1p-24f;
  }

 private:
  std::uint64_t state_, word_ = 0;
  int left_ = 0;
};

// Each codec has the scales of a row (ScalesOf), the code of a value in kBits bits (Code), and the value of a code
// (Value). Scales that are not finite make the row NaN. Subnormal scales become zero; if all scales are zero, the row
// decodes to zeros.
struct Qsgd {
  static constexpr std::uint32_t kBits = 4;
  using Scales = std::array<float, 1>;

  static Scales ScalesOf(std::uint32_t dim, const float* row) {
    double squares = 0;
    for (std::uint32_t j = 0; j < dim; ++j) squares += double(row[j]) * double(row[j]);
    return {static_cast<float>(std::sqrt(squares) / kLevels)};
  }
  Qsgd(std::uint32_t dim, const float* row, const Scales& scales) : chance(dim, row), scale(scales[0]) {}
  std::uint32_t Code(float x) {
    const float level = std::min(std::fabs(x) / scale, kLevels);
    const auto below = static_cast<std::uint32_t>(level);
    const std::uint32_t above = chance.Next() < level - static_cast<float>(below);  // without a branch
    return (below + above) | Negative(x) << 3;
  }
  static float Value(std::uint32_t code, const Scales& scales) {
    const float magnitude = scales[0] * static_cast<float>(code & 7);
    return (code & 8) != 0 ? -magnitude : magnitude;
  }

  Chance chance;
  float scale;
};

struct Ternary {
  static constexpr std::uint32_t kBits = 2;
  using Scales = std::array<float, 1>;

  static Scales ScalesOf(std::uint32_t dim, const float* row) {
    float largest = 0;
    for (std::uint32_t j = 0; j < dim; ++j) {
      if (!std::isfinite(row[j])) return {kNaN};
      largest = std::max(largest, std::fabs(row[j]));
    }
    return {largest};
  }
  Ternary(std::uint32_t dim, const float* row, const Scales& scales) : chance(dim, row), scale(scales[0]) {}
  std::uint32_t Code(float x) {
    const std::uint32_t sent = chance.Next() < std::fabs(x) / scale;  // without a branch
    return sent << Negative(x);
  }
  static float Value(std::uint32_t code, const Scales& scales) {
    return scales[0] * (code == 1 ? 1.0f : code == 2 ? -1.0f : 0.0f);
  }

  Chance chance;
  float scale;
};

struct Sign {
  static constexpr std::uint32_t kBits = 1;
  using Scales = std::array<float, 1>;

  static Scales ScalesOf(std::uint32_t dim, const float* row) {
    double sum = 0;
    for (std::uint32_t j = 0; j < dim; ++j) sum += std::fabs(double(row[j]));
    return {static_cast<float>(sum / dim)};
  }
  Sign(std::uint32_t, const float*, const Scales&) {}
  std::uint32_t Code(float x) const { return x < 0 ? 1 : 0; }
  static float Value(std::uint32_t code, const Scales& scales) { return code != 0 ? -scales[0] : scales[0]; }
};

struct OneBit {
  static constexpr std::uint32_t kBits = 1;
  using Scales = std::array<float, 2>;  // the means of the values from 0 on and of those below

  static Scales ScalesOf(std::uint32_t dim, const float* row) {
    double sums[2] = {0, 0};
    std::uint32_t counts[2] = {0, 0};
    for (std::uint32_t j = 0; j < dim; ++j) {
      const int side = row[j] < 0 ? 1 : 0;
      sums[side] += row[j];
      ++counts[side];
    }
    return {static_cast<float>(sums[0] / std::max(counts[0], 1u)),
            static_cast<float>(sums[1] / std::max(counts[1], 1u))};
  }
  OneBit(std::uint32_t, const float*, const Scales&) {}
  std::uint32_t Code(float x) const { return x < 0 ? 1 : 0; }
  static float Value(std::uint32_t code, const Scales& scales) { return scales[code]; }
};

template <typename Codec>
constexpr std::size_t RowBytes(std::uint32_t dim) {
  return sizeof(typename Codec::Scales) + (std::size_t{dim} * Codec::kBits + 7) / 8;
}

template <typename Codec>
void EncodeRow(std::uint32_t dim, const float* row, std::byte* out) {
  typename Codec::Scales scales = Codec::ScalesOf(dim, row);
  const bool finite = std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); });
  if (!finite) scales.fill(kNaN);
  for (float& scale : scales)
    if (std::fabs(scale) < std::numeric_limits<float>::min()) scale = 0;
  std::memcpy(out, scales.data(), sizeof(scales));
  out += sizeof(scales);
  std::memset(out, 0, RowBytes<Codec>(dim) - sizeof(scales));
  if (!finite || std::ranges::all_of(scales, [](float scale) { return scale == 0; })) return;
  Codec codec(dim, row, scales);
  constexpr std::uint32_t kPerByte = 8 / Codec::kBits;
  for (std::uint32_t j = 0; j < dim; j += kPerByte, ++out) {
    const std::uint32_t n = std::min(kPerByte, dim - j);
    std::uint32_t byte = 0;
    for (std::uint32_t k = 0; k < n; ++k) byte |= codec.Code(row[j + k]) << k * Codec::kBits;
    *out = std::byte(byte);
  }
}

template <typename Codec>
void DecodeRow(std::uint32_t dim, const std::byte* in, float* out) {
  typename Codec::Scales scales;
  std::memcpy(scales.data(), in, sizeof(scales));
  in += sizeof(scales);
  std::array<float, 1 << Codec::kBits> values;
  for (std::uint32_t code = 0; code < values.size(); ++code) values[code] = Codec::Value(code, scales);
  constexpr std::uint32_t kPerByte = 8 / Codec::kBits, kMask = (1u << Codec::kBits) - 1;
  std::uint32_t j = 0;
  for (; j + kPerByte <= dim; j += kPerByte, ++in)
    for (std::uint32_t k = 0; k < kPerByte; ++k)
      out[j + k] = values[std::to_integer<std::uint32_t>(*in) >> k * Codec::kBits & kMask];
  for (std::uint32_t k = 0; j + k < dim; ++k)
    out[j + k] = values[std::to_integer<std::uint32_t>(*in) >> k * Codec::kBits & kMask];
}

template <typename Codec>
void EncodeAll(std::uint32_t dim, std::size_t n, const float* in, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) EncodeRow<Codec>(dim, in + i * dim, out + i * RowBytes<Codec>(dim));
}

template <typename Codec>
void DecodeAll(std::uint32_t dim, std::size_t n, const std::byte* in, float* out) {
  for (std::size_t i = 0; i < n; ++i) DecodeRow<Codec>(dim, in + i * RowBytes<Codec>(dim), out + i * dim);
}

}  // namespace

void EncodeLowBits(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, std::byte* out) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  switch (codec) {
    case ValueCodec::kQsgd: return EncodeAll<Qsgd>(dim, n, in, out);
    case ValueCodec::kTernary: return EncodeAll<Ternary>(dim, n, in, out);
    case ValueCodec::kSign: return EncodeAll<Sign>(dim, n, in, out);
    case ValueCodec::kOneBit: return EncodeAll<OneBit>(dim, n, in, out);
    default: TARN_CHECK(false, "a codec of low_bits.h");
  }
}

void DecodeLowBits(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* in, float* out) {
  TARN_CHECK(dim >= 1 && dim <= limits::kRowDimMax, "a row's width is 1..kRowDimMax");
  switch (codec) {
    case ValueCodec::kQsgd: return DecodeAll<Qsgd>(dim, n, in, out);
    case ValueCodec::kTernary: return DecodeAll<Ternary>(dim, n, in, out);
    case ValueCodec::kSign: return DecodeAll<Sign>(dim, n, in, out);
    case ValueCodec::kOneBit: return DecodeAll<OneBit>(dim, n, in, out);
    default: TARN_CHECK(false, "a codec of low_bits.h");
  }
}

}  // namespace tarn::kernels

// Converts fp32 rows to and from int8 with one scale per row. A row of dim floats becomes Int8RowBytes(dim) bytes: its
// scale, one little-endian float, then dim signed bytes; the value is scale * byte.
//
// The scale is max|x| / 127, so the error of an element is at most scale / 2 (plus rounding in the last place). The
// scale is 0, and the row decodes to zeros, if all its magnitudes are below 127 * 2^-126 where subnormals count as zero
// (subnormals.h, and always on a GPU), or below 127 / FLT_MAX elsewhere. A row with a value that is not finite decodes
// to NaN in every value, so that the error stays visible. The same bits on every x86-64. The bytes need no alignment:
// they may point into a frame. Nothing overlaps. Any thread. n may be 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::kernels {

class Stream;  // kernels/stream.h

constexpr std::size_t Int8RowBytes(std::uint32_t dim) { return sizeof(float) + dim; }

// n x dim floats to n x Int8RowBytes(dim) bytes. Rounds to nearest, ties to even. dim is 1..limits::kRowDimMax.
void EncodeInt8Rows(std::uint32_t dim, std::size_t n, const float* in, std::byte* out);

// The reverse.
void DecodeInt8Rows(std::uint32_t dim, std::size_t n, const std::byte* in, float* out);

// On a GPU.
void EncodeInt8Rows(Stream& stream, std::uint32_t dim, std::size_t n, const float* in, std::byte* out);
void DecodeInt8Rows(Stream& stream, std::uint32_t dim, std::size_t n, const std::byte* in, float* out);

}  // namespace tarn::kernels

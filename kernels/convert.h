// Conversions between fp32 and the formats of values in messages, stored rows and exports. The 16-bit formats round to
// nearest, ties to even. Values too large for fp16 become infinity, subnormals are kept, and a NaN stays a (quiet) NaN.
// The same bits on every x86-64. Arrays of bytes need no alignment: they may point into a frame. Nothing overlaps. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// n x dim floats to n * CodecRowBytes(codec, dim) bytes, little-endian. int8: see kernels/quantize.h, codecs of a
// few bits: kernels/low_bits.h. Codecs of whole pushes (IsOfWholePush) are not allowed.
void EncodeRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, std::byte* out);

// The reverse.
void DecodeRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* in, float* out);

// The same for values without rows: for plain codecs.
void EncodeValues(ValueCodec codec, std::size_t n, const float* in, std::byte* out);
void DecodeValues(ValueCodec codec, std::size_t n, const std::byte* in, float* out);

// The same on arrays of 16-bit patterns.
void FloatToBf16(std::size_t n, const float* in, std::uint16_t* out);
void Bf16ToFloat(std::size_t n, const std::uint16_t* in, float* out);
void FloatToFp16(std::size_t n, const float* in, std::uint16_t* out);
void Fp16ToFloat(std::size_t n, const std::uint16_t* in, float* out);

// Index of the first finite value that would become infinity in fp16; n if there is none.
std::size_t FirstBeyondFp16(std::size_t n, const float* in);
// Bf16ToFloat of FloatToBf16, in one pass.
void RoundToBf16(std::size_t n, const float* in, float* out);

// On a GPU. A NaN stays a NaN; its fraction bits are the GPU's.
void FloatToBf16(Stream& stream, std::size_t n, const float* in, std::uint16_t* out);
void Bf16ToFloat(Stream& stream, std::size_t n, const std::uint16_t* in, float* out);
void FloatToFp16(Stream& stream, std::size_t n, const float* in, std::uint16_t* out);
void Fp16ToFloat(Stream& stream, std::size_t n, const std::uint16_t* in, float* out);

}  // namespace tarn::kernels

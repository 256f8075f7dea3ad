// fp32 to and from the 16-bit formats that values travel in. Rounding is to nearest, ties to even; what is too
// large for fp16 becomes infinity, subnormals are kept, a NaN stays a (quiet) NaN. The same bits on every x86-64.
// Arrays of bytes need no alignment: they may point into a frame. Nothing overlaps. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table_spec.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

// Bytes of one encoded value: 4 (fp32), 2 (bf16, fp16).
constexpr std::size_t CodecBytes(ValueCodec codec) { return codec == ValueCodec::kFp32 ? 4 : 2; }

// n floats to n * CodecBytes(codec) bytes, little-endian.
void EncodeValues(ValueCodec codec, std::size_t n, const float* in, std::byte* out);

// n * CodecBytes(codec) bytes to n floats; exact.
void DecodeValues(ValueCodec codec, std::size_t n, const std::byte* in, float* out);

// The same on arrays of 16-bit patterns.
void FloatToBf16(std::size_t n, const float* in, std::uint16_t* out);
void Bf16ToFloat(std::size_t n, const std::uint16_t* in, float* out);
void FloatToFp16(std::size_t n, const float* in, std::uint16_t* out);
void Fp16ToFloat(std::size_t n, const std::uint16_t* in, float* out);

// On a GPU. A NaN stays one, with a fraction of the GPU's own.
void FloatToBf16(Stream& stream, std::size_t n, const float* in, std::uint16_t* out);
void Bf16ToFloat(Stream& stream, std::size_t n, const std::uint16_t* in, float* out);
void FloatToFp16(Stream& stream, std::size_t n, const float* in, std::uint16_t* out);
void Fp16ToFloat(Stream& stream, std::size_t n, const std::uint16_t* in, float* out);

}  // namespace tarn::kernels

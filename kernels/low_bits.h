// Encodes gradient rows with 1, 2 or 4 bits per value. A row of dim floats becomes CodecRowBytes(codec, dim) bytes: one
// or two scales, little-endian floats, then the codes of the values, the first one in the lowest bits.
//
//   kQsgd     QSGD with 7 levels (Alistarh et al., "QSGD: Communication-efficient SGD via gradient quantization and
//             encoding", NIPS 2017, section 3.1, one bucket per row): |x| becomes ||row|| / 7 * l, where l is the level
//             below or above |x| / ||row|| * 7, chosen at random so that the expectation is |x|
//   kTernary  TernGrad (Wen et al., "TernGrad: Ternary gradients to reduce communication in distributed deep learning",
//             NIPS 2017, equation 3, scaled by row, without clipping): sign(x) * max|row| with probability
//             |x| / max|row|, else 0
//   kSign     scaled sign (Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes",
//             ICML 2019, algorithm 2): sign(x) * mean|row|; a zero counts as positive
//   kOneBit   1-bit SGD (Seide et al., "1-bit stochastic gradient descent and its application to data-parallel
//             distributed training of speech DNNs", Interspeech 2014): the mean of the values of the row that are at
//             least 0, or the mean of those below
//
// The error of kSign and kOneBit is not zero on average: the worker adds it to the next gradient (rule W5).
//
// Random numbers are a hash of the bits of the row and the position in it: equal rows give equal bytes, so a repeated
// message equals the first. A row with a value that is not finite decodes to NaN in every value. The same bits on every
// x86-64. The bytes need no alignment. Nothing overlaps. Any thread. n may be 0; dim is 1..limits::kRowDimMax.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::kernels {

// Whether this header's functions encode the codec.
constexpr bool IsLowBits(ValueCodec codec) { return codec >= ValueCodec::kQsgd && codec <= ValueCodec::kOneBit; }

void EncodeLowBits(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, std::byte* out);
void DecodeLowBits(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::byte* in, float* out);

}  // namespace tarn::kernels

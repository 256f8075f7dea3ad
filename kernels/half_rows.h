// Reads and writes rows whose values are stored in 16 bits. All functions access n rows of `dim` values once, allocate
// nothing and may be called from any thread. Arrays must not overlap. The same bits on every x86-64 in one mode of
// subnormals (kernels/subnormals.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::kernels {

// out[i] = *rows[i], widened; n x dim floats. `codec` is kBf16 or kFp16, here and below.
void WidenRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::uint16_t* const* rows, float* out);

// *rows[i] = in[i], rounded stochastically: a value becomes one of its two neighbours in the format, chosen at random
// so that the expectation is the value (Gupta, Agrawal, Gopalakrishnan, Narayanan, ICML 2015). The random bits for
// value j of row i are ChanceWord(seeds[i], j) (core/half.h). Values that the format represents exactly are unchanged.
// A finite value beyond the format's largest number becomes that number, so rounding never produces infinity.
void NarrowRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, const std::uint64_t* seeds,
                std::uint16_t* const* rows);

// row[j] = in[j], rounded to the nearest number, for `dim` values, limits::kRowDimMax at most. A finite value beyond
// the format's largest number becomes that number, too.
void NearestRow(ValueCodec codec, std::uint32_t dim, const float* in, std::uint16_t* row);

}  // namespace tarn::kernels

// Rows that are kept in 16 bits: out of a store and back into it. All functions touch n rows of `dim` values once,
// allocate nothing and may be called from any thread. Nothing overlaps. The same bits on every x86-64 in one mode of
// subnormals (kernels/subnormals.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn::kernels {

// out[i] = *rows[i], widened; n x dim floats. `codec` is kBf16 or kFp16, here and below.
void WidenRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const std::uint16_t* const* rows, float* out);

// *rows[i] = in[i], narrowed by chance: of the two neighbours of a value, the farther from zero with a probability that
// makes the mean the value itself (Gupta, Agrawal, Gopalakrishnan, Narayanan, ICML 2015), decided for value j of row i
// by ChanceWord(seeds[i], j) (core/half.h). A value that the format has stays what it is. A finite value beyond the
// format's largest number becomes that number: chance makes no infinity.
void NarrowRows(ValueCodec codec, std::uint32_t dim, std::size_t n, const float* in, const std::uint64_t* seeds,
                std::uint16_t* const* rows);

}  // namespace tarn::kernels

// The two ways of a bf16 product, for kernels/gemm.h's GemmBf16 and its tests.
#pragma once

#include "kernels/gemm.h"

namespace tarn::kernels {

// With the processor's bf16 instructions; false, and C untouched, if oneDNN has no such product here.
bool GemmBf16Native(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// The factors are rounded to bf16 and multiplied as fp32.
void GemmBf16Emulated(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

}  // namespace tarn::kernels

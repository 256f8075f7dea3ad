// The two ways of a bf16 product, for kernels/gemm.h's GemmBf16 and its tests, and a layer's two products of one
// factor.
#pragma once

#include "kernels/gemm.h"

namespace tarn::kernels {

// What oneDNN makes anew for each shape, a fraction of a millisecond, is kept for as many shapes of a thread. Batches
// and layers give few; should they not, the one that has not been used for the longest time is dropped.
inline constexpr std::size_t kBf16ShapesMax = 256;

// With the processor's bf16 instructions; false, and C untouched, if oneDNN has no such product here.
bool GemmBf16Native(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// dw = dy^T x and, unless dx is null, dx = dy w, as GemmBf16 gives them; dy is rounded once for both where there are
// such instructions.
void GradientsBf16(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx, float* dw);

// The factors are rounded to bf16 and multiplied as fp32.
void GemmBf16Emulated(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

}  // namespace tarn::kernels

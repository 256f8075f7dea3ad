// The two ways of a bf16 product, for kernels/gemm.h's GemmBf16 and LinearBackward, and for tests.
//
// With AMX oneDNN multiplies bf16. avx512_bf16 alone does not make that worth while: oneDNN's products then take twice
// the time of its fp32 ones (bench/results/2026-11-22-training.md), so that the factors are rounded to bf16 and
// multiplied as fp32. The two sum in different orders: which one it is follows from the processor, never from time.
#pragma once

#include "kernels/gemm.h"

namespace tarn::kernels {

// Whether oneDNN uses AMX here: the processor has it, the kernel grants it, and ONEDNN_MAX_CPU_ISA does not exclude it.
bool HasBf16Tiles();

// With oneDNN's bf16; false, and C untouched, if oneDNN has no such product here. No extent is 0.
bool GemmBf16Native(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// The factors are rounded to bf16 and multiplied as fp32.
void GemmBf16Emulated(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// dw = dy^T x and, unless dx is null, dx = dy w, as GemmBf16 gives them; dy is rounded once for both.
void GradientsBf16(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx, float* dw);

// Its two ways, as above.
bool GradientsBf16Native(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx,
                         float* dw);
void GradientsBf16Emulated(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx,
                           float* dw);

}  // namespace tarn::kernels

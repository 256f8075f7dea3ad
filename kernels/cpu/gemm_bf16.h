// The two implementations of a bf16 product, for GemmBf16 and LinearBackward of kernels/gemm.h and for tests.
//
// With AMX, oneDNN multiplies in bf16. With avx512_bf16 alone, its bf16 products take twice the time of fp32 ones
// (bench/results/2026-11-22-training.md), so the factors are rounded to bf16 and multiplied as fp32. The two sum in
// different orders. The choice depends only on the processor, never on measured time.
#pragma once

#include "kernels/gemm.h"

namespace tarn::kernels {

// Whether oneDNN uses AMX here: the processor has it, the operating system permits it, and ONEDNN_MAX_CPU_ISA does not
// exclude it.
bool HasBf16Tiles();

// Multiplies in bf16 with oneDNN. Returns false, with C unchanged, if oneDNN does not support this product on this
// processor. No extent is 0.
bool GemmBf16Native(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// The factors are rounded to bf16 and multiplied as fp32.
void GemmBf16Emulated(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// dw = dy^T x and, unless dx is null, dx = dy w, with the results of GemmBf16; dy is rounded once for both.
void GradientsBf16(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx, float* dw);

// The two implementations of GradientsBf16, like those of GemmBf16.
bool GradientsBf16Native(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx,
                         float* dw);
void GradientsBf16Emulated(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx,
                           float* dw);

}  // namespace tarn::kernels

// The fully connected layer forward as one product of oneDNN's, for kernels/gemm.h's LinearForward, and for tests.
#pragma once

#include <cstddef>

#include "kernels/gemm.h"

namespace tarn::kernels {

// Packing the weights takes what it takes: with fewer rows, or next to no columns, the product and then a pass for bias
// and ReLU is faster (kernels_bench; 415 x 512: 512 rows take as long either way, 2,048 take 6% less, 8,192 15%).
inline constexpr std::size_t kFusedRowsMin = 512, kFusedOutMin = 8;

// y = x w^T + bias, then max(y, 0) if relu, in fp32: the weights are packed into the order in which the product reads
// them, bias and ReLU are applied before y leaves the registers. False, and y untouched, if oneDNN has no such product
// here. No extent is 0; `bias` may be null.
bool FusedForward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y);

}  // namespace tarn::kernels

// The forward pass of a fully connected layer as one oneDNN product, for LinearForward of kernels/gemm.h and for tests.
#pragma once

#include <cstddef>

#include "kernels/gemm.h"

namespace tarn::kernels {

// Packing the weights takes time that does not depend on the rows. With fewer rows, or very few columns, a product and
// a separate pass for bias and ReLU is faster (kernels_bench; 415 x 512: 512 rows take as long either way, 2,048 rows
// take 6% less, 8,192 rows 15% less).
inline constexpr std::size_t kFusedRowsMin = 512, kFusedOutMin = 8;

// y = x w^T + bias, then max(y, 0) if relu, in fp32. The weights are packed in the order in which the product reads
// them, and bias and ReLU are applied in registers. Returns false, with y unchanged, if oneDNN does not support this
// product on this processor. No extent is 0; `bias` may be null.
bool FusedForward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y);

}  // namespace tarn::kernels

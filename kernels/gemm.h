// Matrix products and the fully connected layer. All matrices are row-major fp32.
//
//   LinearShape shape{.rows = batch, .in = 64, .out = 32};
//   LinearForward(shape, x, w, bias, /*relu=*/true, y);                    // y = relu(x w^T + bias)
//   LinearBackward(shape, x, w, y, /*relu=*/true, dy, dx, dw, dbias);
//
// One call runs on one thread (parallelism comes from several workers and threads), so a result never depends on the
// number of threads. It does depend on the processor's family, for which the library chooses its kernels. Any thread
// may call. Inputs and outputs must not overlap. Any extent may be 0.
#pragma once

#include <cstddef>

#include "core/precision.h"

namespace tarn::kernels {

class Stream;  // kernels/stream.h

enum class Transpose : bool { kNo = false, kYes = true };

// op(A) is m x k, op(B) is k x n, C is m x n.
struct GemmShape {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
};

// A matrix in memory: consecutive rows are `stride` floats apart, at least the row's length.
struct MatrixIn {
  const float* data = nullptr;
  std::size_t stride = 0;
  Transpose transpose = Transpose::kNo;
};

// C = alpha * op(A) * op(B) + beta * C. With beta = 0, C is only written and may be uninitialized.
void Gemm(const GemmShape& shape, float alpha, MatrixIn a, MatrixIn b, float beta, float* c, std::size_t c_stride);

// C = op(A) * op(B) of A and B rounded to bf16 (to nearest, ties to even), summed in fp32. C is only written.
// Processors with AMX use its bf16 instructions. Other processors multiply the rounded factors as fp32, which takes
// slightly longer than Gemm.
void GemmBf16(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);

// x: rows x in, w: out x in, bias: out, y: rows x out, all packed. With kBf16 every product below is a GemmBf16. The
// CPU treats kTf32 and kFp16 as kFp32.
struct LinearShape {
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;
  Precision precision = Precision::kFp32;
};

// y = x w^T + bias, then max(y, 0) if relu. `bias` may be null.
void LinearForward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y);

// Gradients of the layer from dy, the gradient with respect to y (rows x out). With relu, y is the result of the
// forward pass, and dy is first set to 0 in place where y is 0; without, y may be null. Then
//   dw = dy^T x (out x in), dbias = column sums of dy in row order (out; may be null),
//   dx = dy w (rows x in; may be null).
// All three are overwritten.
void LinearBackward(const LinearShape& shape, const float* x, const float* w, const float* y, bool relu, float* dy,
                    float* dx, float* dw, float* dbias);

// The same on a GPU, by cuBLASLt. It sums in a different order, so the bits differ from the CPU's. With kBf16 and kFp16
// the factors are first rounded into memory of the stream. For factors that are already 16 bits wide, and for whole
// layers with their masks, kernels/device_gemm.h is faster.
void Gemm(Stream& stream, const GemmShape& shape, float alpha, MatrixIn a, MatrixIn b, float beta, float* c,
          std::size_t c_stride);
void GemmBf16(Stream& stream, const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride);
void LinearForward(Stream& stream, const LinearShape& shape, const float* x, const float* w, const float* bias,
                   bool relu, float* y);
void LinearBackward(Stream& stream, const LinearShape& shape, const float* x, const float* w, const float* y, bool relu,
                    float* dy, float* dx, float* dw, float* dbias);

}  // namespace tarn::kernels

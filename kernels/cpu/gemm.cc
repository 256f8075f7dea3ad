#include "kernels/gemm.h"

#include <dnnl.h>

#include "core/error.h"
#include "kernels/cpu/fused_layer.h"
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/cpu/one_thread.h"
#include "kernels/elementwise.h"

namespace tarn::kernels {
namespace {

// C = beta * C. If beta is 0, C is not read, because it may be uninitialized.
void ScaleMatrix(std::size_t rows, std::size_t columns, float beta, float* c, std::size_t stride) {
  for (std::size_t i = 0; i < rows; ++i) {
    if (beta == 0.0f)
      Fill(columns, 0.0f, c + i * stride);
    else
      Scale(columns, beta, c + i * stride);
  }
}

}  // namespace

void Gemm(const GemmShape& shape, float alpha, MatrixIn a, MatrixIn b, float beta, float* c, std::size_t c_stride) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0 || alpha == 0.0f) return ScaleMatrix(shape.m, shape.n, beta, c, c_stride);
  const OneThread one_thread;
  const dnnl_status_t status =
      dnnl_sgemm(a.transpose == Transpose::kYes ? 'T' : 'N', b.transpose == Transpose::kYes ? 'T' : 'N',
                 static_cast<dnnl_dim_t>(shape.m), static_cast<dnnl_dim_t>(shape.n), static_cast<dnnl_dim_t>(shape.k),
                 alpha, a.data, static_cast<dnnl_dim_t>(a.stride), b.data, static_cast<dnnl_dim_t>(b.stride), beta, c,
                 static_cast<dnnl_dim_t>(c_stride));
  TARN_CHECK(status == dnnl_success, "strides are at least the rows' lengths");
}

namespace {

// C = op(A) * op(B) in the layer's precision.
void Product(Precision precision, const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride) {
  if (precision == Precision::kBf16) return GemmBf16(shape, a, b, c, c_stride);
  Gemm(shape, 1.0f, a, b, 0.0f, c, c_stride);
}

// dw = dy^T x and, unless dx is null, dx = dy w.
void Gradients(const LinearShape& shape, const float* x, const float* w, const float* dy, float* dx, float* dw) {
  const auto [rows, in, out, precision] = shape;
  if (precision == Precision::kBf16) return GradientsBf16(shape, x, w, dy, dx, dw);
  Gemm({.m = out, .n = in, .k = rows}, 1.0f, {.data = dy, .stride = out, .transpose = Transpose::kYes}, {x, in}, 0.0f,
       dw, in);
  if (dx != nullptr) Gemm({.m = rows, .n = in, .k = out}, 1.0f, {dy, out}, {w, in}, 0.0f, dx, in);
}

}  // namespace

void LinearForward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y) {
  const auto [rows, in, out, precision] = shape;
  const bool large = rows >= kFusedRowsMin && out >= kFusedOutMin && in > 0;
  if (large && precision != Precision::kBf16 && FusedForward(shape, x, w, bias, relu, y)) return;
  Product(precision, {.m = rows, .n = out, .k = in}, {.data = x, .stride = in},
          {.data = w, .stride = in, .transpose = Transpose::kYes}, y, out);
  for (std::size_t i = 0; i < rows; ++i) {
    if (bias != nullptr) Add(out, bias, y + i * out);
    if (relu) Relu(out, y + i * out);  // while the row is in the cache
  }
}

void LinearBackward(const LinearShape& shape, const float* x, const float* w, const float* y, bool relu, float* dy,
                    float* dx, float* dw, float* dbias) {
  const auto [rows, in, out, precision] = shape;
  if (relu) ReluBackward(rows * out, y, dy);
  Gradients(shape, x, w, dy, dx, dw);
  if (dbias != nullptr) {
    Fill(out, 0.0f, dbias);
    for (std::size_t i = 0; i < rows; ++i) Add(out, dy + i * out, dbias);
  }
}

}  // namespace tarn::kernels

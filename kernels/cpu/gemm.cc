#include "kernels/gemm.h"

#include <dnnl.h>

#include "core/error.h"
#include "kernels/elementwise.h"

// Of OpenMP, whose header not every compiler brings along; the library's runtime is linked anyway.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace tarn::kernels {
namespace {

// oneDNN takes as many threads as OpenMP would give the caller. The setting is the calling thread's own, and is put
// back: others in the process (Python's libraries) use it too.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// C = beta * C, which does not read C if beta is 0.
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

void LinearForward(const LinearShape& shape, const float* x, const float* w, const float* bias, bool relu, float* y) {
  const auto [rows, in, out] = shape;
  Gemm({.m = rows, .n = out, .k = in}, 1.0f, {.data = x, .stride = in},
       {.data = w, .stride = in, .transpose = Transpose::kYes}, 0.0f, y, out);
  for (std::size_t i = 0; i < rows; ++i) {
    if (bias != nullptr) Add(out, bias, y + i * out);
    if (relu) Relu(out, y + i * out);  // while the row is in the cache
  }
}

void LinearBackward(const LinearShape& shape, const float* x, const float* w, const float* y, bool relu, float* dy,
                    float* dx, float* dw, float* dbias) {
  const auto [rows, in, out] = shape;
  if (relu) ReluBackward(rows * out, y, dy);
  Gemm({.m = out, .n = in, .k = rows}, 1.0f, {.data = dy, .stride = out, .transpose = Transpose::kYes},
       {.data = x, .stride = in}, 0.0f, dw, in);
  if (dbias != nullptr) {
    Fill(out, 0.0f, dbias);
    for (std::size_t i = 0; i < rows; ++i) Add(out, dy + i * out, dbias);
  }
  if (dx == nullptr) return;
  Gemm({.m = rows, .n = in, .k = out}, 1.0f, {.data = dy, .stride = out}, {.data = w, .stride = in}, 0.0f, dx, in);
}

}  // namespace tarn::kernels

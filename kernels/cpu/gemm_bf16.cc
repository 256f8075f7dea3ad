#include "kernels/cpu/gemm_bf16.h"

#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/convert.h"
#include "kernels/cpu/one_thread.h"
#include "kernels/cpu/onednn_memory.h"
#include "kernels/cpu/shape_cache.h"

namespace tarn::kernels {
namespace {

using dnnl::memory;

using Key = std::tuple<std::size_t, std::size_t, std::size_t, Transpose, Transpose, std::size_t>;

// Returns the buffer's items, at least n. The buffer never shrinks, because resize zeroes the items that it adds.
template <typename T>
T* Grow(std::vector<T>* buffer, std::size_t n) {
  if (buffer->size() < n) buffer->resize(n);
  return buffer->data();
}

memory::dim Dim(std::size_t n) { return static_cast<memory::dim>(n); }

// rows x columns in memory, after op().
memory::desc Describe(std::size_t rows, std::size_t columns, std::size_t stride, Transpose transpose,
                      memory::data_type type) {
  const memory::dims strides =
      transpose == Transpose::kYes ? memory::dims{1, Dim(stride)} : memory::dims{Dim(stride), 1};
  return {{Dim(rows), Dim(columns)}, type, strides};
}

// One thread's engine, the products made so far, and the factors as bf16.
class ProductCache {
 public:
  // Null if oneDNN does not support this product on this processor.
  const dnnl::matmul* Find(const GemmShape& shape, Transpose a, Transpose b, std::size_t c_stride) {
    const Key key{shape.m, shape.n, shape.k, a, b, c_stride};
    const std::optional<dnnl::matmul>& product = products_.Find(key, [&] { return Make(shape, a, b, c_stride); });
    return product ? &*product : nullptr;
  }

  // The factors of the next product. Several products may use the same A, plain or transposed.
  void SetA(const GemmShape& shape, MatrixIn a) { Pack(shape.m, shape.k, a, &a_); }
  void SetB(const GemmShape& shape, MatrixIn b) { Pack(shape.k, shape.n, b, &b_); }

  void Run(const dnnl::matmul& product, const GemmShape& shape, Transpose a, Transpose b, float* c,
           std::size_t c_stride) {
    memory in(PackedDesc(shape.m, shape.k, a), engine_, a_.data());
    memory weights(PackedDesc(shape.k, shape.n, b), engine_, b_.data());
    memory out(Describe(shape.m, shape.n, c_stride, Transpose::kNo, memory::data_type::f32), engine_, c);
    product.execute(stream_, {{DNNL_ARG_SRC, in}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, out}});
    stream_.wait();
  }

 private:
  static memory::desc PackedDesc(std::size_t rows, std::size_t columns, Transpose transpose) {
    const std::size_t stride = transpose == Transpose::kYes ? rows : columns;
    return Describe(rows, columns, stride, transpose, memory::data_type::bf16);
  }

  std::optional<dnnl::matmul> Make(const GemmShape& shape, Transpose a, Transpose b, std::size_t c_stride) {
    const auto c = Describe(shape.m, shape.n, c_stride, Transpose::kNo, memory::data_type::f32);
    try {
      const dnnl::matmul::desc wanted(PackedDesc(shape.m, shape.k, a), PackedDesc(shape.k, shape.n, b), c);
      return dnnl::matmul(dnnl::matmul::primitive_desc(wanted, engine_));
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory) throw;
      TARN_CHECK(e.status == dnnl_unimplemented, "oneDNN rejected a valid product shape");
      return std::nullopt;
    }
  }

  // The matrix in bf16, in its memory order, without gaps.
  void Pack(std::size_t rows, std::size_t columns, MatrixIn in, std::vector<std::uint16_t>* to) {
    if (in.transpose == Transpose::kYes) std::swap(rows, columns);
    std::uint16_t* const out = Grow(to, rows * columns);
    if (in.stride == columns) return FloatToBf16(rows * columns, in.data, out);
    for (std::size_t i = 0; i < rows; ++i) FloatToBf16(columns, in.data + i * in.stride, out + i * columns);
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  ShapeCache<Key, std::optional<dnnl::matmul>> products_;  // nullopt: not supported on this processor
  std::vector<std::uint16_t> a_, b_;
};

ProductCache& ProductsOfThread() {
  thread_local ProductCache products;
  return products;
}

// `in` rounded to bf16, without gaps.
MatrixIn Round(std::size_t rows, std::size_t columns, MatrixIn in, std::vector<float>* to) {
  if (in.transpose == Transpose::kYes) std::swap(rows, columns);
  float* const out = Grow(to, rows * columns);
  if (in.stride == columns)
    RoundToBf16(rows * columns, in.data, out);
  else
    for (std::size_t i = 0; i < rows; ++i) RoundToBf16(columns, in.data + i * in.stride, out + i * columns);
  return {out, columns, in.transpose};
}

struct RoundedFactors {
  std::vector<float> a, b;
};

RoundedFactors& FactorsOfThread() {
  thread_local RoundedFactors factors;
  return factors;
}

}  // namespace

bool HasBf16Tiles() {
  static const bool kHas =
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
  return kHas;
}

bool GemmBf16Native(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride) {
  const OneThread one_thread;
  return WithBadAlloc([&] {
    ProductCache& products = ProductsOfThread();
    const dnnl::matmul* product = products.Find(shape, a.transpose, b.transpose, c_stride);
    if (product == nullptr) return false;
    products.SetA(shape, a);
    products.SetB(shape, b);
    products.Run(*product, shape, a.transpose, b.transpose, c, c_stride);
    return true;
  });
}

void GemmBf16Emulated(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride) {
  RoundedFactors& factors = FactorsOfThread();
  const MatrixIn left = Round(shape.m, shape.k, a, &factors.a), right = Round(shape.k, shape.n, b, &factors.b);
  Gemm(shape, 1.0f, left, right, 0.0f, c, c_stride);
}

void GemmBf16(const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride) {
  const bool empty = shape.m == 0 || shape.n == 0 || shape.k == 0;
  if (!empty && HasBf16Tiles() && GemmBf16Native(shape, a, b, c, c_stride)) return;
  GemmBf16Emulated(shape, a, b, c, c_stride);
}

bool GradientsBf16Native(const LinearShape& layer, const float* x, const float* w, const float* dy, float* dx,
                         float* dw) {
  const auto [rows, in, out, precision] = layer;
  const GemmShape of_w{.m = out, .n = in, .k = rows}, of_x{.m = rows, .n = in, .k = out};
  const OneThread one_thread;
  ProductCache& products = ProductsOfThread();
  const dnnl::matmul* for_w = products.Find(of_w, Transpose::kYes, Transpose::kNo, in);
  const dnnl::matmul* for_x = dx != nullptr ? products.Find(of_x, Transpose::kNo, Transpose::kNo, in) : nullptr;
  if (for_w == nullptr || (dx != nullptr && for_x == nullptr)) return false;
  products.SetA(of_x, {.data = dy, .stride = out});
  products.SetB(of_w, {.data = x, .stride = in});
  products.Run(*for_w, of_w, Transpose::kYes, Transpose::kNo, dw, in);
  if (dx == nullptr) return true;
  products.SetB(of_x, {.data = w, .stride = in});
  products.Run(*for_x, of_x, Transpose::kNo, Transpose::kNo, dx, in);
  return true;
}

void GradientsBf16Emulated(const LinearShape& layer, const float* x, const float* w, const float* dy, float* dx,
                           float* dw) {
  const auto [rows, in, out, precision] = layer;
  RoundedFactors& factors = FactorsOfThread();
  const MatrixIn rounded = Round(rows, out, {dy, out}, &factors.a);
  Gemm({.m = out, .n = in, .k = rows}, 1.0f, {rounded.data, out, Transpose::kYes}, Round(rows, in, {x, in}, &factors.b),
       0.0f, dw, in);
  if (dx == nullptr) return;
  Gemm({.m = rows, .n = in, .k = out}, 1.0f, rounded, Round(out, in, {w, in}, &factors.b), 0.0f, dx, in);
}

void GradientsBf16(const LinearShape& layer, const float* x, const float* w, const float* dy, float* dx, float* dw) {
  const bool empty = layer.rows == 0 || layer.in == 0 || layer.out == 0;
  if (!empty && HasBf16Tiles() && GradientsBf16Native(layer, x, w, dy, dx, dw)) return;
  GradientsBf16Emulated(layer, x, w, dy, dx, dw);
}

}  // namespace tarn::kernels

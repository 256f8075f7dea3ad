#include "kernels/gemm.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/gemm_state.h"
#include "kernels/device_gemm.h"
#include "kernels/elementwise.h"

namespace tarn::kernels {
namespace {

// Makes cuBLASLt's handle and workspace at the first product, because many streams multiply nothing. Returns false
// after an error, which it passes to Note.
bool Begin(Stream::Native& native) {
  constexpr const char* kWhat = "preparing the first matrix product";
  if (native.workspace != nullptr) return true;
  if (native.Refuses("the first matrix product is of a new shape")) return false;
  if (native.blas == nullptr) native.Note(cublasLtCreate(&native.blas), kWhat);
  if (native.blas == nullptr) return false;
  ++native.memory_version;
  const cudaError_t error = native.Allocate(Stream::Native::kWorkspaceBytes, &native.workspace);
  if (error == cudaSuccess) return true;
  native.Note(native.NoMemory("the workspace of matrix products", Stream::Native::kWorkspaceBytes, error), kWhat);
  return false;
}

// The element type of the factors.
Element ElementOf(Precision precision) {
  if (precision == Precision::kBf16) return Element::kBf16;
  return precision == Precision::kFp16 ? Element::kFp16 : Element::kFp32;
}

void Check(const Product& p) {
  TARN_CHECK(p.a.element == p.b.element, "both factors have the same element type");
  TARN_CHECK(p.a.element == Element::kFp32 || p.a.element == ElementOf(p.precision),
             "16-bit factors have the format of the precision");
  TARN_CHECK(p.c.element == Element::kFp32 || p.c.element == ElementOf(p.precision),
             "a 16-bit result has the format of the precision");
  TARN_CHECK(p.epilogue == Epilogue::kNone || (p.alpha == 1.0f && p.beta == 0.0f),
             "alpha is 1 and beta is 0 with an epilogue");
  TARN_CHECK(p.epilogue != Epilogue::kBiasGradient || p.a.transpose == Transpose::kYes,
             "kBiasGradient requires a transposed A");
}

// A matrix in memory order, and its rounded copy, whose rows are multiples of 16 bytes.
struct Rounding {
  Rounding(std::size_t m, std::size_t n, const DeviceMatrixIn& matrix)
      : rows(matrix.transpose == Transpose::kYes ? n : m),
        columns(matrix.transpose == Transpose::kYes ? m : n),
        stride((columns + 7) / 8 * 8),
        bytes((rows * stride * sizeof(std::uint16_t) + 255) / 256 * 256) {}
  std::size_t rows, columns, stride, bytes;
};

// The stream's memory for rounded factors, of at least `bytes`. Null, after Note of the error, if it cannot be
// allocated.
std::byte* FactorMemory(Stream::Native& native, const Product& p, std::size_t bytes) {
  constexpr const char* kWhat = "rounding the factors of a matrix product";
  GemmState& state = *native.gemm;
  if (state.factor_bytes >= bytes) return static_cast<std::byte*>(state.factors);
  if (native.Refuses("a matrix product allocates memory for its rounded factors")) return nullptr;
  ++native.memory_version;
  if (state.factors != nullptr) native.Note(native.Release(std::exchange(state.factors, nullptr)), kWhat);
  state.factor_bytes = 0;
  if (const cudaError_t error = native.Allocate(bytes, &state.factors); error != cudaSuccess) {
    const auto [m, n, k] = p.shape;
    native.Note(native.NoMemory(fmt::format("the 16-bit factors of a product {} x {} x {}", m, n, k), bytes, error),
                kWhat);
    return nullptr;
  }
  state.factor_bytes = bytes;
  return static_cast<std::byte*>(state.factors);
}

void Round(Stream::Native& native, Element element, const Rounding& rounding, std::byte* to, DeviceMatrixIn* matrix) {
  auto* const out = reinterpret_cast<std::uint16_t*>(to);
  native.Note(cuda::RoundMatrix(native.stream, rounding.rows, rounding.columns, static_cast<const float*>(matrix->data),
                                matrix->stride, element, out, rounding.stride),
              "rounding a factor");
  *matrix = {out, element, rounding.stride, matrix->transpose};
}

// Rounds factors that are wider than the precision. Returns whether that succeeded.
bool RoundFactors(Stream::Native& native, Product* p) {
  const Element element = ElementOf(p->precision);
  if (p->a.element == element) return true;
  const Rounding a(p->shape.m, p->shape.k, p->a), b(p->shape.k, p->shape.n, p->b);
  std::byte* const memory = FactorMemory(native, *p, a.bytes + b.bytes);
  if (memory == nullptr) return false;
  Round(native, element, a, memory, &p->a);
  Round(native, element, b, memory + a.bytes, &p->b);
  return true;
}

// The result if there is nothing to multiply.
void MultiplyEmpty(Stream::Native& native, const Product& p) {
  native.Note(cuda::ScaleMatrix(native.stream, p.shape.m, p.shape.n, p.beta, p.c), "a matrix product");
  native.Note(RunEpilogue(native, p), "the epilogue of a matrix product");
}

}  // namespace

void Multiply(Stream& stream, const Product& product) {
  Check(product);
  Stream::Native& native = stream.native();
  if (!Begin(native)) return;
  if (product.shape.m == 0 || product.shape.n == 0 || product.shape.k == 0) return MultiplyEmpty(native, product);
  Product rounded = product;
  if (!RoundFactors(native, &rounded)) return;
  if (GemmPlan* plan = PlanOf(native, rounded, product.b.data); plan != nullptr) RunPlan(native, plan, rounded);
}

void UseGemmAlgorithms(Stream& stream, GemmAlgorithms* algorithms) {
  stream.native().gemm->algorithms = algorithms;
  stream.native().gemm->plans.clear();
}

GemmAlgorithms MakeGemmAlgorithms(Stream& stream) { return {stream.device_name(), cublasLtGetVersion()}; }

namespace {

DeviceMatrixIn In(const MatrixIn& m) { return {m.data, Element::kFp32, m.stride, m.transpose}; }

// The products of a layer with activations of type `element`.
Product ForwardProduct(const LinearShape& shape, Element element, const void* x, const void* w, const void* bias,
                       void* y) {
  return {.shape = {.m = shape.rows, .n = shape.out, .k = shape.in},
          .precision = shape.precision,
          .a = {x, element, shape.in},
          .b = {w, element, shape.in, Transpose::kYes},
          .c = {y, element, shape.out},
          .bias = const_cast<void*>(bias)};  // the forward epilogues only read the bias
}

void Forward(Stream& stream, Product product, bool relu, std::uint32_t* mask) {
  const bool bias = product.bias != nullptr;
  if (mask != nullptr)
    product.epilogue = bias ? Epilogue::kReluBiasMask : Epilogue::kReluMask;
  else if (relu)
    product.epilogue = bias ? Epilogue::kReluBias : Epilogue::kRelu;
  else
    product.epilogue = bias ? Epilogue::kBias : Epilogue::kNone;
  product.mask = mask;
  Multiply(stream, product);
}

// dw = dy^T x and dbias.
template <typename T>
void BackwardWeights(Stream& stream, const LinearShape& shape, Element element, const LinearGradients<T>& arrays) {
  const auto [rows, in, out, precision] = shape;
  // The bias gradient sums dy itself, not dy as rounded for the product.
  const bool separate = arrays.dbias != nullptr && element != ElementOf(precision);
  const bool fused = arrays.dbias != nullptr && !separate;
  Multiply(stream, {.shape = {.m = out, .n = in, .k = rows},
                    .precision = precision,
                    .a = {arrays.dy, element, out, Transpose::kYes},
                    .b = {arrays.x, element, in},
                    .c = {arrays.dw, Element::kFp32, in},
                    .epilogue = fused ? Epilogue::kBiasGradient : Epilogue::kNone,
                    .bias = arrays.dbias});
  Stream::Native& native = stream.native();
  if (!separate || native.workspace == nullptr) return;
  native.Note(cuda::SumColumns(native.stream, rows, out, arrays.dy, element, out, arrays.dbias, Element::kFp32,
                               static_cast<float*>(native.workspace), Stream::Native::kWorkspaceBytes / sizeof(float)),
              "a bias gradient");
}

// dx = dy w; if there is a mask, the gradient before the ReLU that computed x.
template <typename T>
void BackwardInputs(Stream& stream, const LinearShape& shape, Element element, const LinearGradients<T>& arrays) {
  const auto [rows, in, out, precision] = shape;
  TARN_CHECK(arrays.x_bias_gradient == nullptr || arrays.x_mask != nullptr || rows == 0,
             "x_bias_gradient needs a mask");
  Epilogue epilogue = arrays.x_mask == nullptr ? Epilogue::kNone : Epilogue::kReluGradient;
  if (arrays.x_bias_gradient != nullptr) epilogue = Epilogue::kReluBiasGradient;
  Multiply(stream, {.shape = {.m = rows, .n = in, .k = out},
                    .precision = precision,
                    .a = {arrays.dy, element, out},
                    .b = {arrays.w, element, in},
                    .c = {arrays.dx, element, in},
                    .epilogue = epilogue,
                    .bias = arrays.x_bias_gradient,
                    .mask = const_cast<std::uint32_t*>(arrays.x_mask)});  // these epilogues only read the mask
}

template <typename T>
void Backward(Stream& stream, const LinearShape& shape, Element element, const LinearGradients<T>& arrays) {
  BackwardWeights(stream, shape, element, arrays);
  // Without rows dx may be null; x_bias_gradient is then set to 0.
  if (arrays.dx != nullptr || arrays.x_bias_gradient != nullptr) BackwardInputs(stream, shape, element, arrays);
}

// The element type of 16-bit activations.
Element HalfOf(Precision precision) {
  const Element element = ElementOf(precision);
  TARN_CHECK(element != Element::kFp32, "16 bits are bf16 or fp16");
  return element;
}

}  // namespace

void Gemm(Stream& stream, const GemmShape& shape, float alpha, MatrixIn a, MatrixIn b, float beta, float* c,
          std::size_t c_stride) {
  Multiply(stream,
           {.shape = shape, .a = In(a), .b = In(b), .c = {c, Element::kFp32, c_stride}, .alpha = alpha, .beta = beta});
}

void GemmBf16(Stream& stream, const GemmShape& shape, MatrixIn a, MatrixIn b, float* c, std::size_t c_stride) {
  Multiply(stream,
           {.shape = shape, .precision = Precision::kBf16, .a = In(a), .b = In(b), .c = {c, Element::kFp32, c_stride}});
}

void LinearForward(Stream& stream, const LinearShape& shape, const float* x, const float* w, const float* bias,
                   bool relu, float* y) {
  Forward(stream, ForwardProduct(shape, Element::kFp32, x, w, bias, y), relu, nullptr);
}

void LinearForward(Stream& stream, const LinearShape& shape, const float* x, const float* w, const float* bias,
                   float* y, std::uint32_t* mask) {
  Forward(stream, ForwardProduct(shape, Element::kFp32, x, w, bias, y), true, mask);
}

void LinearForward(Stream& stream, const LinearShape& shape, const std::uint16_t* x, const std::uint16_t* w,
                   const std::uint16_t* bias, std::uint16_t* y, std::uint32_t* mask) {
  Forward(stream, ForwardProduct(shape, HalfOf(shape.precision), x, w, bias, y), true, mask);
}

void LinearForward(Stream& stream, const LinearShape& shape, const std::uint16_t* x, const std::uint16_t* w,
                   const std::uint16_t* bias, bool relu, std::uint16_t* y) {
  Forward(stream, ForwardProduct(shape, HalfOf(shape.precision), x, w, bias, y), relu, nullptr);
}

void LinearForward(Stream& stream, const LinearShape& shape, const std::uint16_t* x, const std::uint16_t* w,
                   const float* bias, bool relu, float* y) {
  Product product = ForwardProduct(shape, HalfOf(shape.precision), x, w, bias, y);
  product.c.element = Element::kFp32;
  Forward(stream, product, relu, nullptr);
}

namespace {

void Pad(Stream& stream, Element element, std::size_t rows, std::size_t columns, const float* in, std::size_t in_stride,
         void* out, std::size_t padded_rows, std::size_t padded_columns) {
  stream.native().Note(
      cuda::PadMatrix(stream.native().stream, rows, columns, in, in_stride, element, out, padded_rows, padded_columns),
      "PadMatrix");
}

void Unpad(Stream& stream, Element element, std::size_t rows, std::size_t columns, const void* in,
           std::size_t padded_columns, float* out) {
  stream.native().Note(cuda::UnpadMatrix(stream.native().stream, rows, columns, in, element, padded_columns, out),
                       "UnpadMatrix");
}

}  // namespace

void PadMatrix(Stream& stream, Precision, std::size_t rows, std::size_t columns, const float* in, std::size_t in_stride,
               float* out, std::size_t padded_rows, std::size_t padded_columns) {
  Pad(stream, Element::kFp32, rows, columns, in, in_stride, out, padded_rows, padded_columns);
}

void PadMatrix(Stream& stream, Precision precision, std::size_t rows, std::size_t columns, const float* in,
               std::size_t in_stride, std::uint16_t* out, std::size_t padded_rows, std::size_t padded_columns) {
  Pad(stream, HalfOf(precision), rows, columns, in, in_stride, out, padded_rows, padded_columns);
}

void UnpadMatrix(Stream& stream, Precision, std::size_t rows, std::size_t columns, const float* in,
                 std::size_t padded_columns, float* out) {
  Unpad(stream, Element::kFp32, rows, columns, in, padded_columns, out);
}

void UnpadMatrix(Stream& stream, Precision precision, std::size_t rows, std::size_t columns, const std::uint16_t* in,
                 std::size_t padded_columns, float* out) {
  Unpad(stream, HalfOf(precision), rows, columns, in, padded_columns, out);
}

void LinearBackward(Stream& stream, const LinearShape& shape, const LinearGradients<float>& arrays) {
  Backward(stream, shape, Element::kFp32, arrays);
}

void LinearBackward(Stream& stream, const LinearShape& shape, const LinearGradients<std::uint16_t>& arrays) {
  Backward(stream, shape, HalfOf(shape.precision), arrays);
}

void LinearBackward(Stream& stream, const LinearShape& shape, const float* x, const float* w, const float* y, bool relu,
                    float* dy, float* dx, float* dw, float* dbias) {
  if (relu) ReluBackward(stream, shape.rows * shape.out, y, dy);
  LinearBackward(stream, shape, LinearGradients<float>{.x = x, .w = w, .dy = dy, .dw = dw, .dbias = dbias, .dx = dx});
}

}  // namespace tarn::kernels

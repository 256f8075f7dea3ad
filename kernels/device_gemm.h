// Matrix products on a GPU with 16-bit matrices and fused epilogues. Row-major; pointers are device memory; order and
// errors as in kernels/stream.h. Uses cuBLASLt. If cuBLASLt has no kernel for an epilogue, or a slower one, the product
// and the epilogue are two passes, whose result may differ by one rounding to the element type of C.
//
//   // y = relu(x w^T + bias) in bf16, and a bit for every element that was above 0
//   LinearForward(stream, {rows, in, out, Precision::kBf16}, x, w, bias, y, mask);
//   ...
//   // dw, dbias in fp32; dx already is the gradient before the ReLU that made x
//   LinearBackward(stream, shape, {.x = x, .w = w, .dy = dy, .dw = dw, .dbias = dbias, .dx = dx, .x_mask = x_mask});
//
// The first product of a shape uses the algorithm that cuBLASLt's heuristic expects to be the fastest; the choice is
// cached. With UseGemmAlgorithms the algorithms are measured when the same product occurs again, with its second factor
// at the same address; shapes that occur once, such as the last batch of a file, are not measured. A measurement runs
// each candidate at least twice; it takes some milliseconds to about 0.3 seconds, and memory for another C. A shape can
// be recorded (kernels/graph.h) after it has run and, if it is to be measured, after the measurement: an earlier
// recording is abandoned, and the next run measures.
//
// Fastest where all strides are multiples of 16 bytes and all extents of 64: pad 479 inputs to 512.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm.h"

namespace tarn::kernels {

class GemmAlgorithms;  // kernels/gemm_algorithms.h

enum class Element : std::uint8_t { kFp32, kBf16, kFp16 };

// Matrices in device memory: consecutive rows are `stride` elements apart, and `data` is aligned at least to the size
// of an element.
struct DeviceMatrixIn {
  const void* data = nullptr;
  Element element = Element::kFp32;
  std::size_t stride = 0;
  Transpose transpose = Transpose::kNo;
};
struct DeviceMatrix {
  void* data = nullptr;
  Element element = Element::kFp32;
  std::size_t stride = 0;
};

// The epilogue: element-wise operations on C = op(A) op(B). bias has the type of C's elements.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,              // C + bias (n, added to every row)
  kRelu,              // max(C, 0)
  kReluBias,          // max(C + bias, 0)
  kReluMask,          // as kRelu; writes the mask
  kReluBiasMask,      // as kReluBias; writes the mask
  kReluGradient,      // C where the mask's bit is set, else 0
  kReluBiasGradient,  // as kReluGradient; writes to bias (n) the sums of C's columns
  kBiasGradient,      // C; writes to bias (m) the sums of the rows of op(A), which must be a transposed matrix
};

// A mask has a bit for every element of an m x n matrix, bit j % 32 of word j / 32 of its row: set if the element is
// above 0, clear if below; the bit of an element that is 0 depends on cuBLASLt's kernel. A row of the mask has a
// multiple of 128 bits, and the mask is aligned to 16 bytes.
constexpr std::size_t ReluMaskStride(std::size_t n) { return (n + 127) / 128 * 4; }  // in words
constexpr std::size_t ReluMaskWords(std::size_t m, std::size_t n) { return m * ReluMaskStride(n); }

// C = alpha * op(A) * op(B) + beta * C, summed in fp32, then the epilogue. A and B have the same element type: either
// that of the precision, or fp32, which is first rounded to the precision. C has the element type of A and B, or fp32.
// With an epilogue, alpha must be 1 and beta 0.
struct Product {
  GemmShape shape;
  Precision precision = Precision::kFp32;
  DeviceMatrixIn a, b;
  DeviceMatrix c;
  float alpha = 1.0f, beta = 0.0f;
  Epilogue epilogue = Epilogue::kNone;
  void* bias = nullptr;           // read or written, depending on the epilogue
  std::uint32_t* mask = nullptr;  // likewise
};
void Multiply(Stream& stream, const Product& product);

// The fully connected layer with ReLU: y as in LinearForward of kernels/gemm.h, and the mask for its backward pass. T
// is float, or for kBf16 and kFp16 std::uint16_t, their bit patterns. `bias` may be null.
void LinearForward(Stream& stream, const LinearShape& shape, const float* x, const float* w, const float* bias,
                   float* y, std::uint32_t* mask);
void LinearForward(Stream& stream, const LinearShape& shape, const std::uint16_t* x, const std::uint16_t* w,
                   const std::uint16_t* bias, std::uint16_t* y, std::uint32_t* mask);
// The same layer without ReLU, or with a ReLU that needs no backward pass.
void LinearForward(Stream& stream, const LinearShape& shape, const std::uint16_t* x, const std::uint16_t* w,
                   const std::uint16_t* bias, bool relu, std::uint16_t* y);
// The same, but the fp32 sums are not rounded: for the last layer of a network.
void LinearForward(Stream& stream, const LinearShape& shape, const std::uint16_t* x, const std::uint16_t* w,
                   const float* bias, bool relu, float* y);

// Copies a matrix of rows x columns floats, whose rows are in_stride apart, to the upper left of the packed padded_rows
// x padded_columns matrix `out`, and zeros to the rest. 16-bit elements are rounded to the precision.
void PadMatrix(Stream& stream, Precision precision, std::size_t rows, std::size_t columns, const float* in,
               std::size_t in_stride, float* out, std::size_t padded_rows, std::size_t padded_columns);
void PadMatrix(Stream& stream, Precision precision, std::size_t rows, std::size_t columns, const float* in,
               std::size_t in_stride, std::uint16_t* out, std::size_t padded_rows, std::size_t padded_columns);
// The reverse: copies the upper left rows x columns of a packed matrix with padded_columns columns to the packed matrix
// `out`.
void UnpadMatrix(Stream& stream, Precision precision, std::size_t rows, std::size_t columns, const float* in,
                 std::size_t padded_columns, float* out);
void UnpadMatrix(Stream& stream, Precision precision, std::size_t rows, std::size_t columns, const std::uint16_t* in,
                 std::size_t padded_columns, float* out);

// The layer's gradients from dy, the gradient with respect to x w^T + bias (rows x out).
template <typename T>
struct LinearGradients {
  const T* x = nullptr;
  const T* w = nullptr;
  const T* dy = nullptr;
  float* dw = nullptr;     // out x in
  float* dbias = nullptr;  // out; null: not computed
  T* dx = nullptr;         // rows x in; null: not computed
  // The mask of the ReLU that computed x: dx then is the gradient before that ReLU, the dy of the layer below. May be
  // null. x_bias_gradient (in): the sums of dx's columns in T, the dbias of the layer below. Null, or given together
  // with a mask and dx.
  const std::uint32_t* x_mask = nullptr;
  T* x_bias_gradient = nullptr;
};
void LinearBackward(Stream& stream, const LinearShape& shape, const LinearGradients<float>& arrays);
void LinearBackward(Stream& stream, const LinearShape& shape, const LinearGradients<std::uint16_t>& arrays);

// From now on the stream's products use the fastest measured algorithms: those in `algorithms`, which outlives the
// stream; products that are not in it are measured at their second occurrence and added. Null: cuBLASLt's heuristic.
void UseGemmAlgorithms(Stream& stream, GemmAlgorithms* algorithms);
// An empty collection for the stream's GPU and cuBLASLt.
GemmAlgorithms MakeGemmAlgorithms(Stream& stream);

}  // namespace tarn::kernels

// The device of a model: the calling thread, or a stream of a GPU. Both have the same operations (those of kernels/)
// and the same kind of memory, so that a model is written once.
//
//   Compute compute;              // or Compute(&stream)
//   float* x = compute.Get<float>(rows * width);
//   compute.ConcatForward(batch, dim, table, x, width);
//
// All pointers refer to memory of the device. On a GPU an operation returns before it is complete. If GPU memory is
// exhausted (memory().failed()), operations do nothing and their outputs are undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/precision.h"
#include "kernels/device_gemm.h"
#include "kernels/gemm.h"
#include "kernels/stream.h"
#include "worker/models/views.h"
#include "worker/models/workspace.h"

namespace tarn::worker {

// One thread at a time.
class Compute {
 public:
  // `stream` outlives this object; null: the calling thread.
  explicit Compute(kernels::Stream* stream = nullptr) : stream_(stream), memory_(stream) {}

  bool on_gpu() const { return stream_ != nullptr; }
  Workspace& memory() { return memory_; }
  template <typename T>
  T* Get(std::size_t n) {
    return memory_.Get<T>(n);
  }

  // kernels/elementwise.h, kernels/rows.h
  void Fill(std::size_t n, float value, float* out);
  void Add(std::size_t n, const float* in, float* out);
  void ReluBackward(std::size_t n, const float* y, float* dy);
  void CopyColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                   std::size_t out_stride);
  void AddColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                  std::size_t out_stride);

  // kernels/embedding.h, kernels/fm.h, for a batch's occurrences in a sparse table. *Backward adds to the table's
  // gradients.
  void BagForward(const BatchView& batch, std::uint32_t dim, const TableView& table, float* out);
  void BagBackward(const BatchView& batch, std::uint32_t dim, const float* grad_out, const TableView& table);
  void BiasForward(const BatchView& batch, const TableView& table, float* out);
  void BiasBackward(const BatchView& batch, const float* grad_out, const TableView& table);
  void ConcatForward(const BatchView& batch, std::uint32_t dim, const TableView& table, float* out, std::size_t stride);
  void ConcatBackward(const BatchView& batch, std::uint32_t dim, const float* grad_out, std::size_t stride,
                      const TableView& table);
  void FmForward(const BatchView& batch, std::uint32_t dim, const TableView& table, float* out, float* sums);
  void FmBackward(const BatchView& batch, std::uint32_t dim, const float* grad_out, const float* sums,
                  const TableView& table);

  // kernels/interaction.h, kernels/cross.h
  void InteractionForward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out);
  void InteractionBackward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                           const float* grad_out, float* grad_in);
  void CrossForward(std::size_t n, const float* x0, const float* y, const float* x, float* out);
  void CrossBackward(std::size_t n, const float* x0, const float* y, const float* grad_out, float* grad_y,
                     float* grad_x0);

  // kernels/loss.h. Returns the sum of the losses; nullopt on a GPU, where Tally computes it later from the copied
  // logits. `grad` may be null.
  std::optional<double> LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale, float* grad);
  void SoftmaxByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels, float scale,
                    float* grad, double* losses, std::uint32_t* correct);

  // Fully connected layers. T: type of the factors of matrix products: float, or on a GPU the 16-bit patterns of bf16
  // and fp16. On a GPU matrices are padded with zeros to the fastest sizes.
  bool SixteenBits(Precision precision) const {
    return on_gpu() && (precision == Precision::kBf16 || precision == Precision::kFp16);
  }
  // n rounded up to a fast size.
  std::size_t Padded(std::size_t n) const;
  // Pads and converts rows x columns floats, with rows `stride` apart, to padded_rows x padded_columns of T.
  template <typename T>
  void Pad(Precision precision, std::size_t rows, std::size_t columns, const float* in, std::size_t stride, T* out,
           std::size_t padded_rows, std::size_t padded_columns);
  // The inverse; the result is packed.
  template <typename T>
  void Unpad(Precision precision, std::size_t rows, std::size_t columns, const T* in, std::size_t padded_columns,
             float* out);
  // Memory for the mask of rows x columns that LinearForward writes; null: not needed.
  std::uint32_t* GetMask(std::size_t rows, std::size_t columns);
  // kernels/device_gemm.h. `mask`: of y; null without ReLU.
  template <typename T>
  void LinearForward(const kernels::LinearShape& shape, const T* x, const T* w, const T* bias, bool relu, T* y,
                     std::uint32_t* mask);
  // The same with fp32 output and without a mask.
  template <typename T>
  void LinearToFloats(const kernels::LinearShape& shape, const T* x, const T* w, const float* bias, bool relu,
                      float* y);
  // `x_relu`: x is the output of a ReLU, and dx is the gradient of its input; on a GPU x_mask is then its mask.
  template <typename T>
  void LinearBackward(const kernels::LinearShape& shape, const kernels::LinearGradients<T>& arrays, bool x_relu);

 private:
  // Runs op() on the calling thread, or op(stream) on the GPU.
  template <typename Op>
  void Run(Op op);

  kernels::Stream* stream_;
  Workspace memory_;
};

}  // namespace tarn::worker

#include "worker/models/compute.h"

#include <type_traits>

#include "kernels/cross.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/fm.h"
#include "kernels/interaction.h"
#include "kernels/loss.h"
#include "kernels/rows.h"

namespace tarn::worker {
namespace {

// Whether an operation runs on a GPU: Run passes it a stream there, and no argument on the CPU.
template <typename... On>
constexpr bool kOnGpu = sizeof...(On) != 0;

}  // namespace

template <typename Op>
void Compute::Run(Op op) {
  if (memory_.failed()) return;
#if TARN_HAS_CUDA
  if (on_gpu()) return op(*stream_);
#endif
  op();
}

void Compute::Fill(std::size_t n, float value, float* out) {
  Run([=](auto&... on) { kernels::Fill(on..., n, value, out); });
}

void Compute::Add(std::size_t n, const float* in, float* out) {
  Run([=](auto&... on) { kernels::Add(on..., n, in, out); });
}

void Compute::ReluBackward(std::size_t n, const float* y, float* dy) {
  Run([=](auto&... on) { kernels::ReluBackward(on..., n, y, dy); });
}

void Compute::CopyColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                          std::size_t out_stride) {
  Run([=](auto&... on) { kernels::CopyColumns(on..., rows, columns, in, in_stride, out, out_stride); });
}

void Compute::AddColumns(std::size_t rows, std::uint32_t columns, const float* in, std::size_t in_stride, float* out,
                         std::size_t out_stride) {
  Run([=](auto&... on) { kernels::AddColumns(on..., rows, columns, in, in_stride, out, out_stride); });
}

void Compute::BagForward(const BatchView& batch, std::uint32_t dim, const TableView& table, float* out) {
  Run([&](auto&... on) {
    kernels::EmbeddingBagForward(on..., batch.rows, dim, table.rows, table.index, batch.offsets, batch.weights, out);
  });
}

void Compute::BagBackward(const BatchView& batch, std::uint32_t dim, const float* grad_out, const TableView& table) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...>)
      kernels::EmbeddingBagBackward(on..., batch.rows, dim, grad_out, batch.offsets, batch.weights, *table.segments,
                                    table.gradients);
    else
      kernels::EmbeddingBagBackward(batch.rows, dim, grad_out, table.index, batch.offsets, batch.weights,
                                    table.gradients);
  });
}

void Compute::BiasForward(const BatchView& batch, const TableView& table, float* out) {
  Run([&](auto&... on) { kernels::BiasForward(on..., batch.rows, table.rows, table.index + batch.keys, out); });
}

void Compute::BiasBackward(const BatchView& batch, const float* grad_out, const TableView& table) {
  Run([&](auto&... on) {
    kernels::BiasBackward(on..., batch.rows, grad_out, table.index + batch.keys, table.gradients);
  });
}

void Compute::ConcatForward(const BatchView& batch, std::uint32_t dim, const TableView& table, float* out,
                            std::size_t stride) {
  Run([&](auto&... on) {
    kernels::EmbeddingConcatForward(on..., batch.rows, batch.fields, dim, table.rows, table.index + batch.first, out,
                                    stride);
  });
}

void Compute::ConcatBackward(const BatchView& batch, std::uint32_t dim, const float* grad_out, std::size_t stride,
                             const TableView& table) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...>)
      kernels::EmbeddingConcatBackward(on..., batch.rows, batch.fields, dim, grad_out, stride, *table.segments,
                                       table.gradients);
    else
      kernels::EmbeddingConcatBackward(batch.rows, batch.fields, dim, grad_out, stride, table.index + batch.first,
                                       table.gradients);
  });
}

void Compute::FmForward(const BatchView& batch, std::uint32_t dim, const TableView& table, float* out, float* sums) {
  Run([&](auto&... on) {
    kernels::FmForward(on..., batch.rows, dim, table.rows, table.index, batch.offsets, batch.weights, out, sums);
  });
}

void Compute::FmBackward(const BatchView& batch, std::uint32_t dim, const float* grad_out, const float* sums,
                         const TableView& table) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...>)
      kernels::FmBackward(on..., batch.rows, dim, table.rows, batch.offsets, batch.weights, grad_out, sums,
                          table.segments, table.gradients);
    else
      kernels::FmBackward(batch.rows, dim, table.rows, table.index, batch.offsets, batch.weights, grad_out, sums,
                          table.gradients);
  });
}

void Compute::InteractionForward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                                 float* out) {
  Run([=](auto&... on) { kernels::InteractionForward(on..., samples, vectors, dim, in, out); });
}

void Compute::InteractionBackward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                                  const float* grad_out, float* grad_in) {
  Run([=](auto&... on) { kernels::InteractionBackward(on..., samples, vectors, dim, in, grad_out, grad_in); });
}

void Compute::CrossForward(std::size_t n, const float* x0, const float* y, const float* x, float* out) {
  Run([=](auto&... on) { kernels::CrossForward(on..., n, x0, y, x, out); });
}

void Compute::CrossBackward(std::size_t n, const float* x0, const float* y, const float* grad_out, float* grad_y,
                            float* grad_x0) {
  Run([=](auto&... on) { kernels::CrossBackward(on..., n, x0, y, grad_out, grad_y, grad_x0); });
}

std::optional<double> Compute::LogisticLoss(std::size_t n, const float* logits, const float* labels, float scale,
                                            float* grad) {
  std::optional<double> loss;
  Run([&]<typename... On>(On&... on) {
    if constexpr (!kOnGpu<On...>)
      loss = kernels::LogisticLoss(n, logits, labels, scale, grad);
    else if (grad != nullptr)
      kernels::LogisticGradient(on..., n, logits, labels, scale, grad);
  });
  return loss;
}

void Compute::SoftmaxByRow(std::size_t n, std::uint32_t classes, const float* logits, const float* labels, float scale,
                           float* grad, double* losses, std::uint32_t* correct) {
  Run([=](auto&... on) {
    kernels::SoftmaxCrossEntropyByRow(on..., n, classes, logits, labels, scale, grad, losses, correct);
  });
}

// cuBLASLt's kernels with wide tiles need multiples of 64; a narrow layer would then be mostly zeros.
std::size_t Compute::Padded(std::size_t n) const {
  if (!on_gpu()) return n;
  const std::size_t multiple = n < 256 ? 8 : 64;
  return (n + multiple - 1) / multiple * multiple;
}

std::uint32_t* Compute::GetMask(std::size_t rows, std::size_t columns) {
  return on_gpu() ? Get<std::uint32_t>(kernels::ReluMaskWords(rows, columns)) : nullptr;
}

template <typename T>
void Compute::Pad(Precision precision, std::size_t rows, std::size_t columns, const float* in, std::size_t stride,
                  T* out, std::size_t padded_rows, std::size_t padded_columns) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...>)
      kernels::PadMatrix(on..., precision, rows, columns, in, stride, out, padded_rows, padded_columns);
    else if constexpr (std::is_same_v<T, float>)
      kernels::CopyColumns(rows, static_cast<std::uint32_t>(columns), in, stride, out, columns);
  });
}

template <typename T>
void Compute::Unpad(Precision precision, std::size_t rows, std::size_t columns, const T* in, std::size_t padded_columns,
                    float* out) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...>)
      kernels::UnpadMatrix(on..., precision, rows, columns, in, padded_columns, out);
    else if constexpr (std::is_same_v<T, float>)
      kernels::CopyColumns(rows, static_cast<std::uint32_t>(columns), in, padded_columns, out, columns);
  });
}

template <typename T>
void Compute::LinearForward(const kernels::LinearShape& shape, const T* x, const T* w, const T* bias, bool relu, T* y,
                            std::uint32_t* mask) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (!kOnGpu<On...> && std::is_same_v<T, float>)
      kernels::LinearForward(shape, x, w, bias, relu, y);
    else if constexpr (kOnGpu<On...>)
      mask != nullptr ? kernels::LinearForward(on..., shape, x, w, bias, y, mask)
                      : kernels::LinearForward(on..., shape, x, w, bias, relu, y);
  });
}

template <typename T>
void Compute::LinearToFloats(const kernels::LinearShape& shape, const T* x, const T* w, const float* bias, bool relu,
                             float* y) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...> || std::is_same_v<T, float>) kernels::LinearForward(on..., shape, x, w, bias, relu, y);
  });
}

template <typename T>
void Compute::LinearBackward(const kernels::LinearShape& shape, const kernels::LinearGradients<T>& arrays,
                             bool x_relu) {
  Run([&]<typename... On>(On&... on) {
    if constexpr (kOnGpu<On...>) {
      kernels::LinearBackward(on..., shape, arrays);
    } else if constexpr (std::is_same_v<T, float>) {
      kernels::LinearBackward(shape, arrays.x, arrays.w, nullptr, /*relu=*/false,
                              const_cast<float*>(arrays.dy),  // changed only with relu
                              arrays.dx, arrays.dw, arrays.dbias);
      if (x_relu && arrays.dx != nullptr) kernels::ReluBackward(shape.rows * shape.in, arrays.x, arrays.dx);
    }
  });
}

// Both element types are always compiled; the 16-bit functions do nothing without a GPU.
template void Compute::Pad(Precision, std::size_t, std::size_t, const float*, std::size_t, float*, std::size_t,
                           std::size_t);
template void Compute::Pad(Precision, std::size_t, std::size_t, const float*, std::size_t, std::uint16_t*, std::size_t,
                           std::size_t);
template void Compute::Unpad(Precision, std::size_t, std::size_t, const float*, std::size_t, float*);
template void Compute::Unpad(Precision, std::size_t, std::size_t, const std::uint16_t*, std::size_t, float*);
template void Compute::LinearForward(const kernels::LinearShape&, const float*, const float*, const float*, bool,
                                     float*, std::uint32_t*);
template void Compute::LinearForward(const kernels::LinearShape&, const std::uint16_t*, const std::uint16_t*,
                                     const std::uint16_t*, bool, std::uint16_t*, std::uint32_t*);
template void Compute::LinearToFloats(const kernels::LinearShape&, const float*, const float*, const float*, bool,
                                      float*);
template void Compute::LinearToFloats(const kernels::LinearShape&, const std::uint16_t*, const std::uint16_t*,
                                      const float*, bool, float*);
template void Compute::LinearBackward(const kernels::LinearShape&, const kernels::LinearGradients<float>&, bool);
template void Compute::LinearBackward(const kernels::LinearShape&, const kernels::LinearGradients<std::uint16_t>&,
                                      bool);

}  // namespace tarn::worker

#include "kernels/interaction.h"

#include <vector>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/interaction.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

#ifndef TARN_KERNELS_INTERACTION_LANES
#define TARN_KERNELS_INTERACTION_LANES
namespace tarn::kernels {
// No instruction set has more lanes; the rows of the working arrays are padded to it.
inline constexpr std::size_t kLanesMax = 16;
inline constexpr std::size_t Padded(std::size_t n) { return (n + kLanesMax - 1) / kLanesMax * kLanesMax; }
}  // namespace tarn::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::CappedTag<float, kLanesMax>;

// out[j] = sum over i in [0, n) of a[i] * b[i * b_stride + j] in the order of i, for j in [0, width).
// b's rows may be read, and out written, to the next multiple of kLanesMax. Products and sums are rounded apart:
// a fused multiply-add would not give the same bits where there is none.
HWY_INLINE void RowTimesMatrix(std::size_t n, std::size_t width, const float* a, const float* b, std::size_t b_stride,
                               float* out) {
  const Lanes lanes;
  for (std::size_t j = 0; j < width; j += hn::Lanes(lanes)) {
    auto sum = hn::Zero(lanes);
    for (std::size_t i = 0; i < n; ++i)
      sum = hn::Add(sum, hn::Mul(hn::Set(lanes, a[i]), hn::LoadU(lanes, b + i * b_stride + j)));
    hn::StoreU(sum, lanes, out + j);
  }
}

// Dot products of vector i with the vectors before it: a row of a product with the transposed sample, so that the
// lanes are pairs and no lane is summed with another. `transposed` is dim x Padded(vectors), `dots` Padded(vectors).
void Forward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out,
             float* transposed, float* dots) {
  const std::size_t stride = Padded(vectors);
  for (std::size_t s = 0; s < samples; ++s, in += std::size_t{vectors} * dim) {
    for (std::size_t i = 0; i < vectors; ++i)
      for (std::size_t d = 0; d < dim; ++d) transposed[d * stride + i] = in[i * dim + d];
    for (std::size_t d = 0; d < dim; ++d) *out++ = in[d];
    for (std::size_t i = 1; i < vectors; ++i) {
      RowTimesMatrix(dim, i, in + i * dim, transposed, stride, dots);
      for (std::size_t j = 0; j < i; ++j) *out++ = dots[j];
    }
  }
}

// The gradient of vector i is row i of the symmetric matrix of the pairs' gradients (zero on the diagonal) times the
// sample's vectors. `pairs` is vectors x vectors, `padded` vectors x Padded(dim), `row` Padded(dim).
void Backward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, const float* grad_out,
              float* grad_in, float* pairs, float* padded, float* row) {
  const std::size_t stride = Padded(dim);
  const std::size_t n = vectors;
  for (std::size_t s = 0; s < samples; ++s, in += n * dim) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t d = 0; d < dim; ++d) padded[i * stride + d] = in[i * dim + d];
    const float* grad_first = grad_out;
    grad_out += dim;
    for (std::size_t i = 0; i < n; ++i) {
      pairs[i * n + i] = 0.0f;
      for (std::size_t j = 0; j < i; ++j) pairs[i * n + j] = pairs[j * n + i] = *grad_out++;
    }
    for (std::size_t i = 0; i < n; ++i) {
      RowTimesMatrix(n, dim, pairs + i * n, padded, stride, row);
      for (std::size_t d = 0; d < dim; ++d) *grad_in++ = i == 0 ? grad_first[d] + row[d] : row[d];
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

namespace {

void Check(std::uint32_t vectors, std::uint32_t dim) {
  TARN_CHECK(vectors >= 1 && std::size_t{vectors} * dim <= kInteractionFloatsMax,
             "a sample has at least the bottom's vector and at most kInteractionFloatsMax floats");
}

}  // namespace

void InteractionForward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out) {
  Check(vectors, dim);
  std::vector<float> transposed(dim * Padded(vectors));
  std::vector<float> dots(Padded(vectors));
  HWY_DYNAMIC_DISPATCH(Forward)(samples, vectors, dim, in, out, transposed.data(), dots.data());
}

void InteractionBackward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                         const float* grad_out, float* grad_in) {
  Check(vectors, dim);
  std::vector<float> pairs(std::size_t{vectors} * vectors);
  std::vector<float> padded(vectors * Padded(dim));
  std::vector<float> row(Padded(dim));
  HWY_DYNAMIC_DISPATCH(Backward)(samples, vectors, dim, in, grad_out, grad_in, pairs.data(), padded.data(), row.data());
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE

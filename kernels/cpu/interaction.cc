#include "kernels/interaction.h"

#include <xmmintrin.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/interaction.cc"
#include "hwy/foreach_target.h"  // compiles the loops below once for each instruction set
#include "hwy/highway.h"

#ifndef TARN_KERNELS_INTERACTION_LANES
#define TARN_KERNELS_INTERACTION_LANES
namespace tarn::kernels {
// Maximum number of lanes of an instruction set. The rows of the working arrays are padded to a multiple of this.
inline constexpr std::size_t kLanesMax = 16;
// Rows of a product's tile: with two blocks of lanes, its 8 sums hide the latency of an addition.
inline constexpr std::size_t kTileRows = 4;
inline constexpr std::size_t Padded(std::size_t n) { return (n + kLanesMax - 1) / kLanesMax * kLanesMax; }
}  // namespace tarn::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::CappedTag<float, kLanesMax>;

// Matrices whose rows are `stride` floats apart.
struct In {
  const float* data;
  std::size_t stride;
};
struct Out {
  float* data;
  std::size_t stride;
};

// A tile of a product: kRows of its rows by kBlocks blocks of lanes. The sums stay in registers while the rows of b are
// read. Products and sums are rounded separately, because processors without fused multiply-add must give the same
// bits.
template <std::size_t kRows, std::size_t kBlocks>
HWY_INLINE void Tile(std::size_t n, In a, In b, Out out) {
  const Lanes lanes;
  const std::size_t block = hn::Lanes(lanes);
  hn::Vec<Lanes> sums[kRows][kBlocks];
  for (auto& row : sums)
    for (auto& sum : row) sum = hn::Zero(lanes);
  for (std::size_t i = 0; i < n; ++i) {
    hn::Vec<Lanes> columns[kBlocks];
    for (std::size_t c = 0; c < kBlocks; ++c) columns[c] = hn::LoadU(lanes, b.data + i * b.stride + c * block);
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(lanes, a.data[r * a.stride + i]);
      for (std::size_t c = 0; c < kBlocks; ++c) sums[r][c] = hn::Add(sums[r][c], hn::Mul(factor, columns[c]));
    }
  }
  for (std::size_t r = 0; r < kRows; ++r)
    for (std::size_t c = 0; c < kBlocks; ++c) hn::StoreU(sums[r][c], lanes, out.data + r * out.stride + c * block);
}

template <std::size_t kRows>
HWY_INLINE void Tiles(std::size_t n, std::size_t width, In a, In b, Out out) {
  const std::size_t block = hn::Lanes(Lanes());
  std::size_t j = 0;
  for (; j + block < width; j += 2 * block) Tile<kRows, 2>(n, a, {b.data + j, b.stride}, {out.data + j, out.stride});
  if (j < width) Tile<kRows, 1>(n, a, {b.data + j, b.stride}, {out.data + j, out.stride});
}

// out = a b for `rows` rows: out[r][j] = sum over i in [0, n) of a[r][i] * b[i][j] in the order of i, for j in
// [0, width). b's rows may be read, and those of out written, to the next multiple of kLanesMax.
HWY_INLINE void Product(std::size_t rows, std::size_t n, std::size_t width, In a, In b, Out out) {
  const auto skip = [&](std::size_t r) {
    rows -= r;
    a.data += r * a.stride;
    out.data += r * out.stride;
  };
  for (; rows >= kTileRows; skip(kTileRows)) Tiles<kTileRows>(n, width, a, b, out);
  for (; rows >= 2; skip(2)) Tiles<2>(n, width, a, b, out);
  if (rows != 0) Tiles<1>(n, width, a, b, out);
}

// out[d * stride + i] = in[i * dim + d], by squares of 4 x 4.
HWY_INLINE void Transposed(std::size_t vectors, std::size_t dim, const float* in, std::size_t stride, float* out) {
  std::size_t i = 0;
  for (; i + 4 <= vectors; i += 4, in += 4 * dim) {
    std::size_t d = 0;
    for (; d + 4 <= dim; d += 4) {
      __m128 rows[4];
      for (std::size_t r = 0; r < 4; ++r) rows[r] = _mm_loadu_ps(in + r * dim + d);
      _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
      for (std::size_t r = 0; r < 4; ++r) _mm_storeu_ps(out + (d + r) * stride + i, rows[r]);
    }
    for (; d < dim; ++d)
      for (std::size_t r = 0; r < 4; ++r) out[d * stride + i + r] = in[r * dim + d];
  }
  for (; i < vectors; ++i, in += dim)
    for (std::size_t d = 0; d < dim; ++d) out[d * stride + i] = in[d];
}

// Dot products of vector i with the vectors before it: a row of the product with the transposed sample. Each lane
// computes one pair, so lanes are never summed with each other. All rows of a tile are as long as its last.
// `transposed` is dim x Padded(vectors), `dots` kTileRows x Padded(vectors).
void Forward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out,
             float* transposed, float* dots) {
  const std::size_t stride = Padded(vectors);
  for (std::size_t s = 0; s < samples; ++s, in += std::size_t{vectors} * dim) {
    Transposed(vectors, dim, in, stride, transposed);
    for (std::size_t d = 0; d < dim; ++d) *out++ = in[d];
    for (std::size_t begin = 1; begin < vectors; begin += kTileRows) {
      const std::size_t rows = std::min<std::size_t>(kTileRows, vectors - begin);
      Product(rows, dim, begin + rows - 1, {in + begin * dim, dim}, {transposed, stride}, {dots, stride});
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < begin + r; ++j) *out++ = dots[r * stride + j];
    }
  }
}

// The gradient of vector i is row i of the symmetric matrix of the pairs' gradients (zero on the diagonal) times the
// sample's vectors. `pairs` is vectors x vectors. If dim is not a multiple of kLanesMax, `padded` and `product` are
// vectors x Padded(dim).
void Backward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, const float* grad_out,
              float* grad_in, float* pairs, float* padded, float* product) {
  const std::size_t stride = Padded(dim), n = vectors;
  for (std::size_t s = 0; s < samples; ++s, in += n * dim, grad_in += n * dim) {
    const float* grad_first = grad_out;
    grad_out += dim;
    for (std::size_t i = 0; i < n; ++i) {
      pairs[i * n + i] = 0.0f;
      for (std::size_t j = 0; j < i; ++j) pairs[i * n + j] = pairs[j * n + i] = *grad_out++;
    }
    if (stride == dim) {
      Product(n, n, dim, {pairs, n}, {in, dim}, {grad_in, dim});
    } else {
      for (std::size_t i = 0; i < n; ++i) std::copy_n(in + i * dim, dim, padded + i * stride);
      Product(n, n, dim, {pairs, n}, {padded, stride}, {product, stride});
      for (std::size_t i = 0; i < n; ++i) std::copy_n(product + i * stride, dim, grad_in + i * dim);
    }
    for (std::size_t d = 0; d < dim; ++d) grad_in[d] += grad_first[d];
  }
}

}  // namespace
}  // namespace tarn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn::kernels {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

void InteractionForward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out) {
  TARN_CHECK(IsInteraction(vectors, dim), "a sample is within the bounds of an interaction");
  std::vector<float> transposed(dim * Padded(vectors));
  std::vector<float> dots(kTileRows * Padded(vectors));
  HWY_DYNAMIC_DISPATCH(Forward)(samples, vectors, dim, in, out, transposed.data(), dots.data());
}

void InteractionBackward(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                         const float* grad_out, float* grad_in) {
  TARN_CHECK(IsInteraction(vectors, dim), "a sample is within the bounds of an interaction");
  std::vector<float> pairs(std::size_t{vectors} * vectors);
  const std::size_t floats = Padded(dim) == dim ? 0 : vectors * Padded(dim);
  std::vector<float> padded(floats), product(floats);
  HWY_DYNAMIC_DISPATCH(Backward)
  (samples, vectors, dim, in, grad_out, grad_in, pairs.data(), padded.data(), product.data());
}

}  // namespace tarn::kernels
#endif  // HWY_ONCE

// Rows by index: a warp moves a row, 16 bytes a lane where rows are aligned.
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"

namespace tarn::kernels::cuda {
namespace {

// Copies a row of `dim` floats by one warp.
template <bool kAligned>
__device__ inline void CopyRow(std::uint32_t dim, const float* from, float* to, unsigned lane) {
  if constexpr (kAligned) {
    for (std::uint32_t j = lane; j < dim / 4; j += kWarp)
      reinterpret_cast<float4*>(to)[j] = __ldg(reinterpret_cast<const float4*>(from) + j);
  } else {
    for (std::uint32_t j = lane; j < dim; j += kWarp) to[j] = __ldg(from + j);
  }
}

// row(i) gives where row i of n comes from and goes to.
template <typename F>
cudaError_t CopyRows(cudaStream_t stream, std::uint32_t dim, std::size_t n, bool aligned, F row) {
  if (aligned && dim % 4 == 0)
    return ForEachRow(stream, n, [=] __device__(std::size_t i, unsigned lane) {
      const auto [from, to] = row(i);
      CopyRow<true>(dim, from, to, lane);
    });
  return ForEachRow(stream, n, [=] __device__(std::size_t i, unsigned lane) {
    const auto [from, to] = row(i);
    CopyRow<false>(dim, from, to, lane);
  });
}

struct Move {
  const float* from;
  float* to;
};

}  // namespace

cudaError_t GatherByIndex(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in,
                          const std::uint32_t* index, float* out) {
  return CopyRows(stream, dim, n, IsAligned16(in) && IsAligned16(out),
                  [=] __device__(std::size_t i) { return Move{in + std::size_t{index[i]} * dim, out + i * dim}; });
}

cudaError_t ScatterByIndex(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in,
                           const std::uint32_t* index, float* out) {
  return CopyRows(stream, dim, n, IsAligned16(in) && IsAligned16(out),
                  [=] __device__(std::size_t i) { return Move{in + i * dim, out + std::size_t{index[i]} * dim}; });
}

cudaError_t CopyColumns(cudaStream_t stream, std::size_t rows, std::uint32_t columns, const float* in,
                        std::size_t in_stride, float* out, std::size_t out_stride) {
  const bool aligned = IsAligned16(in) && IsAligned16(out) && in_stride % 4 == 0 && out_stride % 4 == 0;
  return CopyRows(stream, columns, rows, aligned,
                  [=] __device__(std::size_t r) { return Move{in + r * in_stride, out + r * out_stride}; });
}

cudaError_t AddColumns(cudaStream_t stream, std::size_t rows, std::uint32_t columns, const float* in,
                       std::size_t in_stride, float* out, std::size_t out_stride) {
  return ForEach(stream, rows * columns, [=] __device__(std::size_t i) {
    const std::size_t r = i / columns, c = i % columns;
    out[r * out_stride + c] += in[r * in_stride + c];
  });
}

cudaError_t EmbeddingConcatForward(cudaStream_t stream, std::size_t samples, std::uint32_t fields, std::uint32_t dim,
                                   const float* rows, const std::uint32_t* inverse, float* out,
                                   std::size_t out_stride) {
  const bool aligned = IsAligned16(rows) && IsAligned16(out) && out_stride % 4 == 0;
  return CopyRows(stream, dim, samples * fields, aligned, [=] __device__(std::size_t o) {
    return Move{rows + std::size_t{inverse[o]} * dim, out + o / fields * out_stride + o % fields * dim};
  });
}

// Sums run in the order of the occurrences, each product and sum rounded by itself, as on the CPU.
cudaError_t EmbeddingBagForward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                                const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights,
                                float* out) {
  return ForEachRow(stream, samples, [=] __device__(std::size_t s, unsigned lane) {
    for (std::uint32_t j = lane; j < dim; j += kWarp) {
      float sum = 0.0f;
      for (std::uint32_t o = offsets[s]; o < offsets[s + 1]; ++o) {
        const float weight = weights == nullptr ? 1.0f : weights[o];
        sum += weight * __ldg(rows + std::size_t{inverse[o]} * dim + j);
      }
      out[s * dim + j] = sum;
    }
  });
}

}  // namespace tarn::kernels::cuda

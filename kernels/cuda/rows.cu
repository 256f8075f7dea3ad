// Rows by index, and the forward passes of embeddings.
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/move_rows.cuh"

namespace tarn::kernels::cuda {
namespace {

// Sums of bags: the threads of a row compute one sample, each for its own columns, with kRowsAtOnce occurrences' rows
// in flight. Sums run in the order of the occurrences; products and sums are rounded separately, as on the CPU.
template <int kWidth>
__global__ void __launch_bounds__(kBlock, 5)
    SumBagsKernel(std::size_t samples, std::uint32_t dim, unsigned threads, const float* rows,
                  const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights, float* out) {
  for (std::size_t s = FirstThread() / threads; s < samples; s += Threads() / threads) {
    const std::uint32_t begin = offsets[s], end = offsets[s + 1];
    for (std::uint32_t j = threadIdx.x % threads * kWidth; j < dim; j += threads * kWidth) {
      Floats<kWidth> sum = {};
      for (std::uint32_t o = begin; o < end; o += kRowsAtOnce) {
        Floats<kWidth> term[kRowsAtOnce];
        float weight[kRowsAtOnce];
        // Beyond the bag's end, its last row is loaded again and not added.
#pragma unroll
        for (unsigned k = 0; k < kRowsAtOnce; ++k) {
          const std::uint32_t at = min(o + k, end - 1);
          weight[k] = weights == nullptr ? 1.0f : __ldg(weights + at);
          term[k] = LoadConstant<kWidth>(rows + std::size_t{__ldg(inverse + at)} * dim + j);
        }
#pragma unroll
        for (unsigned k = 0; k < kRowsAtOnce; ++k) {
          term[k].Multiply(weight[k]);
          sum.AddIf(o + k < end, term[k]);
        }
      }
      StoreGlobal(out + s * dim + j, sum);
    }
  }
}

}  // namespace

cudaError_t GatherByIndex(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in,
                          const std::uint32_t* index, float* out) {
  return MoveRows(stream, dim, n, IsAligned16(in) && IsAligned16(out),
                  [=] __device__(std::size_t i) { return Move{in + std::size_t{index[i]} * dim, out + i * dim}; });
}

cudaError_t ScatterByIndex(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in,
                           const std::uint32_t* index, float* out) {
  return MoveRows(stream, dim, n, IsAligned16(in) && IsAligned16(out),
                  [=] __device__(std::size_t i) { return Move{in + i * dim, out + std::size_t{index[i]} * dim}; });
}

cudaError_t CopyColumns(cudaStream_t stream, std::size_t rows, std::uint32_t columns, const float* in,
                        std::size_t in_stride, float* out, std::size_t out_stride) {
  const bool aligned = IsAligned16(in) && IsAligned16(out) && in_stride % 4 == 0 && out_stride % 4 == 0;
  return MoveRows(stream, columns, rows, aligned,
                  [=] __device__(std::size_t r) { return Move{in + r * in_stride, out + r * out_stride}; });
}

cudaError_t AddColumns(cudaStream_t stream, std::size_t rows, std::uint32_t columns, const float* in,
                       std::size_t in_stride, float* out, std::size_t out_stride) {
  const bool aligned = IsAligned16(in) && IsAligned16(out) && in_stride % 4 == 0 && out_stride % 4 == 0;
  return MoveRows<true>(stream, columns, rows, aligned,
                        [=] __device__(std::size_t r) { return Move{in + r * in_stride, out + r * out_stride}; });
}

cudaError_t EmbeddingConcatForward(cudaStream_t stream, std::size_t samples, std::uint32_t fields, std::uint32_t dim,
                                   const float* rows, const std::uint32_t* inverse, float* out,
                                   std::size_t out_stride) {
  if (samples == 0 || fields == 0) return cudaSuccess;
  const bool aligned = IsAligned16(rows) && IsAligned16(out) && out_stride % 4 == 0;
  const Divisor by_fields(fields);
  return MoveRows(stream, dim, samples * fields, aligned, [=] __device__(std::size_t i) {
    const auto o = static_cast<std::uint32_t>(i);
    const std::uint32_t sample = by_fields.Quotient(o), field = o - sample * by_fields.by();
    return Move{rows + std::size_t{inverse[o]} * dim, out + sample * out_stride + std::size_t{field} * dim};
  });
}

cudaError_t EmbeddingBagForward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                                const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights,
                                float* out) {
  if (samples == 0 || dim == 0) return cudaSuccess;
  if (dim % 4 == 0 && IsAligned16(rows) && IsAligned16(out)) {
    const unsigned threads = ThreadsOfRow(dim, 4);
    SumBagsKernel<4><<<BlocksFor(samples * threads), kBlock, 0, stream>>>(samples, dim, threads, rows, inverse, offsets,
                                                                          weights, out);
  } else {
    const unsigned threads = ThreadsOfRow(dim, 1);
    SumBagsKernel<1><<<BlocksFor(samples * threads), kBlock, 0, stream>>>(samples, dim, threads, rows, inverse, offsets,
                                                                          weights, out);
  }
  return cudaGetLastError();
}

}  // namespace tarn::kernels::cuda

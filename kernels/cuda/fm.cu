// The factorization machine. A tile of threads computes one sample, with the same operations in the same order as on
// the CPU.
#include "kernels/cuda/segment_sum.cuh"
#include "kernels/cuda/tile.cuh"

namespace tarn::kernels::cuda {
namespace {

// The gradient of occurrence o, counted from offsets[0].
struct FmTerm {
  const float* rows;
  const std::uint32_t *sample_of, *offsets;
  const float *weights, *grad_out, *sums;
  std::uint32_t dim;

  template <int kWidth>
  __device__ Floats<kWidth> At(std::uint32_t o, std::uint32_t row, std::uint32_t j) const {
    const std::size_t s = __ldg(sample_of + o);
    const float x = weights == nullptr ? 1.0f : __ldg(weights + std::size_t{__ldg(offsets)} + o);
    const float grad = __ldg(grad_out + s) * x;
    const Floats<kWidth> v = LoadConstant<kWidth>(rows + std::size_t{row} * dim + j);
    Floats<kWidth> term = LoadConstant<kWidth>(sums + s * dim + j);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) term.v[k] = grad * (term.v[k] - x * v.v[k]);
    return term;
  }
};

}  // namespace

cudaError_t FmForward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                      const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights, float* out,
                      float* sums) {
  return ForEachTile(stream, samples, [=] __device__(std::size_t s, unsigned lane) {
    double partial = 0;
    for (std::uint32_t j = lane; j < dim; j += kTile) {
      float sum = 0.0f, pairs = 0.0f;
      for (std::uint32_t o = offsets[s]; o < offsets[s + 1]; ++o) {
        const std::size_t row = inverse == nullptr ? o : inverse[o];
        const float xv = (weights == nullptr ? 1.0f : weights[o]) * rows[row * dim + j];
        pairs += xv * sum;
        sum += xv;
      }
      sums[s * dim + j] = sum;
      partial += double(pairs);
    }
    const double total = SumOfTile(partial);
    if (lane == 0) out[s] = float(total);
  });
}

cudaError_t FmBackward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                       const std::uint32_t* offsets, const float* weights, const float* grad_out, const float* sums,
                       const SegmentsView& segments, float* grad_rows) {
  if (const cudaError_t error = SampleOf(stream, samples, offsets, segments.sample_of); error != cudaSuccess)
    return error;
  const FmTerm term{rows, segments.sample_of, offsets, weights, grad_out, sums, dim};
  return SumSegments(stream, segments, dim, IsAligned16(rows) && IsAligned16(sums), term, grad_rows);
}

cudaError_t FmBackwardOfOwnRows(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                                const std::uint32_t* offsets, const float* weights, const float* grad_out,
                                const float* sums, float* grad_rows) {
  return ForEachTile(stream, samples, [=] __device__(std::size_t s, unsigned lane) {
    for (std::uint32_t o = offsets[s]; o < offsets[s + 1]; ++o) {
      const float x = weights == nullptr ? 1.0f : weights[o];
      const float grad = grad_out[s] * x;
      for (std::uint32_t j = lane; j < dim; j += kTile) {
        const std::size_t i = std::size_t{o} * dim + j;
        grad_rows[i] += grad * (sums[s * dim + j] - x * rows[i]);
      }
    }
  });
}

}  // namespace tarn::kernels::cuda

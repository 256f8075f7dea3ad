// The gradients of embeddings, from the samples back to the rows (the forward passes are in rows.cu).
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/segment_sum.cuh"

namespace tarn::kernels::cuda {
namespace {

// The gradient of occurrence o, counted from offsets[0]: the gradient of its sample, sample_of[o], times the weight of
// the occurrence.
struct BagTerm {
  const float* grad_out;
  const std::uint32_t *sample_of, *offsets;
  const float* weights;
  std::uint32_t dim;

  template <int kWidth>
  __device__ Floats<kWidth> At(std::uint32_t o, std::uint32_t, std::uint32_t j) const {
    Floats<kWidth> term = LoadConstant<kWidth>(grad_out + std::size_t{__ldg(sample_of + o)} * dim + j);
    term.Multiply(weights == nullptr ? 1.0f : __ldg(weights + std::size_t{__ldg(offsets)} + o));
    return term;
  }
};

struct ConcatTerm {
  const float* grad_out;
  std::size_t stride;
  Divisor fields;
  std::uint32_t dim;

  template <int kWidth>
  __device__ Floats<kWidth> At(std::uint32_t o, std::uint32_t, std::uint32_t j) const {
    const std::uint32_t sample = fields.Quotient(o), field = o - sample * fields.by();
    return LoadConstant<kWidth>(grad_out + sample * stride + std::size_t{field} * dim + j);
  }
};

// One block, because the sum is too small to be worth a second kernel. Each thread has kSumAtOnce loads in flight.
constexpr unsigned kSumThreads = 1024;
constexpr unsigned kSumAtOnce = 8;

__global__ void __launch_bounds__(kSumThreads)
    SumToRowKernel(std::size_t n, const float* in, const std::uint32_t* row, float* rows) {
  double sum = 0;
  for (std::size_t begin = threadIdx.x; begin < n; begin += kSumThreads * kSumAtOnce) {
    float terms[kSumAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kSumAtOnce; ++k) {
      const std::size_t i = begin + k * kSumThreads;
      terms[k] = i < n ? __ldg(in + i) : 0.0f;
    }
#pragma unroll
    for (unsigned k = 0; k < kSumAtOnce; ++k) sum += double(terms[k]);
  }
  const double total = SumOfBlock<kSumThreads>(sum);
  if (threadIdx.x == 0) rows[*row] += float(total);
}

}  // namespace

cudaError_t BiasForward(cudaStream_t stream, std::size_t samples, const float* rows, const std::uint32_t* row,
                        float* out) {
  return ForEach(stream, samples, [=] __device__(std::size_t s) { out[s] += rows[*row]; });
}

cudaError_t BiasBackward(cudaStream_t stream, std::size_t samples, const float* grad_out, const std::uint32_t* row,
                         float* grad_rows) {
  if (samples == 0) return cudaSuccess;
  SumToRowKernel<<<1, kSumThreads, 0, stream>>>(samples, grad_out, row, grad_rows);
  return cudaGetLastError();
}

cudaError_t SampleOf(cudaStream_t stream, std::size_t samples, const std::uint32_t* offsets, std::uint32_t* sample_of) {
  return ForEachRow(stream, samples, [=] __device__(std::size_t s, unsigned lane) {
    const std::uint32_t base = offsets[0], end = offsets[s + 1];
    for (std::uint32_t o = offsets[s] + lane; o < end; o += kWarp) sample_of[o - base] = static_cast<std::uint32_t>(s);
  });
}

cudaError_t EmbeddingBagBackward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* grad_out,
                                 const std::uint32_t* offsets, const float* weights, const SegmentsView& segments,
                                 float* grad_rows) {
  if (const cudaError_t error = SampleOf(stream, samples, offsets, segments.sample_of); error != cudaSuccess)
    return error;
  const BagTerm term{grad_out, segments.sample_of, offsets, weights, dim};
  return SumSegments(stream, segments, dim, IsAligned16(grad_out), term, grad_rows);
}

cudaError_t EmbeddingConcatBackward(cudaStream_t stream, std::uint32_t fields, std::uint32_t dim, const float* grad_out,
                                    std::size_t out_stride, const SegmentsView& segments, float* grad_rows) {
  if (segments.n == 0) return cudaSuccess;
  const bool aligned = IsAligned16(grad_out) && out_stride % 4 == 0;
  const ConcatTerm term{grad_out, out_stride, Divisor(fields), dim};
  return SumSegments(stream, segments, dim, aligned, term, grad_rows);
}

}  // namespace tarn::kernels::cuda

// DLRM's dot interaction: a block of threads takes a sample, holds its vectors in shared memory where they fit, and
// computes each product in the order of the dimensions, as on the CPU.
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"

namespace tarn::kernels::cuda {
namespace {

constexpr std::size_t kSharedBytesMax = std::size_t{48} << 10;

// Pair p of <1,0> <2,0> <2,1> <3,0> ...: the larger of its two vectors.
__device__ inline std::uint32_t LargerOf(std::uint32_t p) {
  auto i = static_cast<std::uint32_t>((1.0f + sqrtf(1.0f + 8.0f * static_cast<float>(p))) / 2.0f);
  while (i * (i - 1) / 2 > p) --i;
  while ((i + 1) * i / 2 <= p) ++i;
  return i;
}

// The vectors of a sample: in shared memory with one float between them, so that threads which read different vectors
// at the same place do not wait for each other; or where they are.
struct Sample {
  const float* values;
  std::uint32_t stride;
};

__device__ inline Sample Hold(const float* in, std::uint32_t vectors, std::uint32_t dim, float* shared) {
  if (shared == nullptr) return {in, dim};
  for (std::uint32_t i = threadIdx.x; i < vectors * dim; i += blockDim.x) shared[i / dim * (dim + 1) + i % dim] = in[i];
  __syncthreads();
  return {shared, dim + 1};
}

__global__ void ForwardKernel(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                              float* out, bool fits) {
  extern __shared__ float shared[];
  const std::uint32_t pairs = vectors * (vectors - 1) / 2;
  const std::size_t width = std::size_t{dim} + pairs;
  for (std::size_t s = blockIdx.x; s < samples; s += gridDim.x) {
    const Sample sample = Hold(in + s * vectors * dim, vectors, dim, fits ? shared : nullptr);
    float* to = out + s * width;
    for (std::uint32_t d = threadIdx.x; d < dim; d += blockDim.x) to[d] = sample.values[d];
    for (std::uint32_t p = threadIdx.x; p < pairs; p += blockDim.x) {
      const std::uint32_t i = LargerOf(p), j = p - i * (i - 1) / 2;
      const float *a = sample.values + std::size_t{i} * sample.stride,
                  *b = sample.values + std::size_t{j} * sample.stride;
      float sum = 0.0f;
      for (std::uint32_t d = 0; d < dim; ++d) sum += a[d] * b[d];
      to[dim + p] = sum;
    }
    __syncthreads();  // before the next sample overwrites the vectors
  }
}

__global__ void BackwardKernel(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in,
                               const float* grad_out, float* grad_in, bool fits) {
  extern __shared__ float shared[];
  const std::size_t width = std::size_t{dim} + vectors * (vectors - 1) / 2;
  for (std::size_t s = blockIdx.x; s < samples; s += gridDim.x) {
    const Sample sample = Hold(in + s * vectors * dim, vectors, dim, fits ? shared : nullptr);
    const float *first = grad_out + s * width, *of_pairs = first + dim;
    for (std::uint32_t e = threadIdx.x; e < vectors * dim; e += blockDim.x) {
      const std::uint32_t i = e / dim, d = e % dim;
      float sum = 0.0f;
      for (std::uint32_t j = 0; j < vectors; ++j) {
        const std::uint32_t large = max(i, j), small = min(i, j);
        const float grad = i == j ? 0.0f : of_pairs[large * (large - 1) / 2 + small];
        sum += grad * sample.values[std::size_t{j} * sample.stride + d];
      }
      grad_in[s * vectors * dim + e] = i == 0 ? first[d] + sum : sum;
    }
    __syncthreads();
  }
}

struct Layout {
  unsigned blocks;
  std::size_t shared;
  bool fits;
};

Layout LayoutOf(std::size_t samples, std::uint32_t vectors, std::uint32_t dim) {
  const std::size_t bytes = std::size_t{vectors} * (dim + 1) * sizeof(float);
  const bool fits = bytes <= kSharedBytesMax;
  return {static_cast<unsigned>(std::min(samples, kBlocksMax)), fits ? bytes : 0, fits};
}

}  // namespace

cudaError_t InteractionForward(cudaStream_t stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                               const float* in, float* out) {
  if (samples == 0) return cudaSuccess;
  const Layout layout = LayoutOf(samples, vectors, dim);
  ForwardKernel<<<layout.blocks, kBlock, layout.shared, stream>>>(samples, vectors, dim, in, out, layout.fits);
  return cudaGetLastError();
}

cudaError_t InteractionBackward(cudaStream_t stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                                const float* in, const float* grad_out, float* grad_in) {
  if (samples == 0) return cudaSuccess;
  const Layout layout = LayoutOf(samples, vectors, dim);
  BackwardKernel<<<layout.blocks, kBlock, layout.shared, stream>>>(samples, vectors, dim, in, grad_out, grad_in,
                                                                   layout.fits);
  return cudaGetLastError();
}

}  // namespace tarn::kernels::cuda

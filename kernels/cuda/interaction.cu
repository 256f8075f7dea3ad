// DLRM's dot interaction: a block of threads computes a sample. If its vectors fit into shared memory, a thread
// computes many results together, so that each loaded value serves several of them. Every sum runs in the CPU's order
// (forward: of the dimensions, backward: of the vectors); products and sums are rounded separately.
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"

namespace tarn::kernels::cuda {
namespace {

// Pair p of <1,0> <2,0> <2,1> <3,0> ...: the larger of its two vectors.
__device__ inline std::uint32_t LargerOf(std::uint32_t p) {
  auto i = static_cast<std::uint32_t>((1.0f + sqrtf(1.0f + 8.0f * static_cast<float>(p))) / 2.0f);
  while (i * (i - 1) / 2 > p) --i;
  while ((i + 1) * i / 2 <= p) ++i;
  return i;
}

// Any shape: one thread per result, directly from global memory.
__global__ void __launch_bounds__(kBlock)
    ForwardKernel(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, const float* in, float* out) {
  const std::uint32_t pairs = vectors * (vectors - 1) / 2;
  const std::size_t width = std::size_t{dim} + pairs;
  for (std::size_t s = blockIdx.x; s < samples; s += gridDim.x) {
    const float* values = in + s * vectors * dim;
    float* to = out + s * width;
    for (std::uint32_t d = threadIdx.x; d < dim; d += blockDim.x) to[d] = values[d];
    for (std::uint32_t p = threadIdx.x; p < pairs; p += blockDim.x) {
      const std::uint32_t i = LargerOf(p), j = p - i * (i - 1) / 2;
      const float *a = values + std::size_t{i} * dim, *b = values + std::size_t{j} * dim;
      float sum = 0.0f;
      for (std::uint32_t d = 0; d < dim; ++d) sum += a[d] * b[d];
      to[dim + p] = sum;
    }
  }
}

__global__ void __launch_bounds__(kBlock) BackwardKernel(std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                                                         const float* in, const float* grad_out, float* grad_in) {
  const std::size_t width = std::size_t{dim} + vectors * (vectors - 1) / 2;
  for (std::size_t s = blockIdx.x; s < samples; s += gridDim.x) {
    const float* values = in + s * vectors * dim;
    const float *first = grad_out + s * width, *of_pairs = first + dim;
    for (std::uint32_t e = threadIdx.x; e < vectors * dim; e += blockDim.x) {
      const std::uint32_t i = e / dim, d = e % dim;
      float sum = 0.0f;
      for (std::uint32_t j = 0; j < vectors; ++j) {
        const std::uint32_t large = max(i, j), small = min(i, j);
        const float grad = i == j ? 0.0f : of_pairs[large * (large - 1) / 2 + small];
        sum += grad * values[std::size_t{j} * dim + d];
      }
      grad_in[s * vectors * dim + e] = i == 0 ? first[d] + sum : sum;
    }
  }
}

// Layout of a sample's vectors in shared memory: `stride` floats each, of which the first `padded`, a multiple of 4,
// may be read; the values after a vector's end are zero. They are excluded from sums, because adding +0 would change a
// sum of -0.
struct SharedLayout {
  std::uint32_t padded, stride;
  Divisor fours;  // by the number of groups of four floats in `padded`

  // `odd`: the stride is an odd multiple of four, so that neighbouring vectors begin in different banks.
  SharedLayout(std::uint32_t dim, bool odd)
      : padded((dim + 3) / 4 * 4), stride(odd && padded % 8 == 0 ? padded + 4 : padded), fours(padded / 4) {}
};

// Calls load(k, i), then store(k, i), for the thread's share of i in [0, n), kAtOnce at a time: all loads are in flight
// before the first store waits for one. Beyond the end, the last i is loaded again and not stored.
template <unsigned kAtOnce, typename Loads, typename Stores>
__device__ inline void InBatches(std::uint32_t n, Loads load, Stores store) {
  for (std::uint32_t begin = threadIdx.x; begin < n; begin += kAtOnce * blockDim.x) {
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) load(k, min(begin + k * blockDim.x, n - 1));
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k)
      if (begin + k * blockDim.x < n) store(k, begin + k * blockDim.x);
  }
}

// Copies a sample's vectors to shared memory in the layout `shape`. kWidth 4: in `from` they begin at multiples of 16
// bytes.
template <int kWidth>
__device__ inline void CopyVectors(std::uint32_t vectors, std::uint32_t dim, const SharedLayout& shape,
                                   const float* from, float* to) {
  constexpr unsigned kAtOnce = 8;
  Floats<4> fours[kAtOnce];
  const auto load = [&](unsigned k, std::uint32_t e) {
    const std::uint32_t vector = shape.fours.Quotient(e), d = (e - vector * shape.fours.by()) * 4;
    if constexpr (kWidth == 4) {
      fours[k] = LoadGlobal<4>(from + vector * dim + d);
    } else {
#pragma unroll
      for (unsigned c = 0; c < 4; ++c) {
        const float v = LoadGlobal<1>(from + vector * dim + min(d + c, dim - 1)).v[0];
        fours[k].v[c] = d + c < dim ? v : 0.0f;
      }
    }
  };
  const auto store = [&](unsigned k, std::uint32_t e) {
    const std::uint32_t vector = shape.fours.Quotient(e), d = (e - vector * shape.fours.by()) * 4;
    Store(to + vector * shape.stride + d, fours[k]);
  };
  InBatches<kAtOnce>(vectors * shape.fours.by(), load, store);
}

// Forward: one thread per square of pairs. Vector i belongs to class i mod `classes`, with at most kSide vectors per
// class; a square holds the pairs between two classes, or within one. So neighbouring threads read neighbouring
// vectors, which are in different banks of shared memory if their stride is an odd multiple of four.
constexpr std::uint32_t kSide = 4;

struct Squares {
  SharedLayout held;
  std::uint32_t classes, squares;
  std::size_t shared_bytes;

  Squares(std::uint32_t vectors, std::uint32_t dim)
      : held(dim, true),
        classes((vectors + kSide - 1) / kSide),
        squares(classes * (classes + 1) / 2),
        shared_bytes((std::size_t{vectors} * held.stride + std::size_t{vectors} * (vectors - 1) / 2) * sizeof(float)) {}
};

// The products of two classes: [k][l] is that of the k-th vector of one and the l-th of the other. If a class has fewer
// vectors, the last ones are arbitrary vectors.
struct Products {
  float of[kSide][kSide] = {};

  __device__ Products(std::uint32_t dim, const float* const (&a)[kSide], const float* const (&b)[kSide]) {
    std::uint32_t d = 0;
#pragma unroll 2
    for (; d + 4 <= dim; d += 4) Add<4>(d, a, b);
    for (; d < dim; ++d) Add<1>(d, a, b);
  }

 private:
  template <int kWidth>
  __device__ void Add(std::uint32_t d, const float* const (&a)[kSide], const float* const (&b)[kSide]) {
    Floats<kWidth> left[kSide], right[kSide];
#pragma unroll
    for (std::uint32_t k = 0; k < kSide; ++k) {
      left[k] = Load<kWidth>(a[k] + d);
      right[k] = Load<kWidth>(b[k] + d);
    }
#pragma unroll
    for (unsigned e = 0; e < kWidth; ++e)
#pragma unroll
      for (std::uint32_t k = 0; k < kSide; ++k)
#pragma unroll
        for (std::uint32_t l = 0; l < kSide; ++l) of[k][l] += left[k].v[e] * right[l].v[e];
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kBlock)
    ForwardSquaresKernel(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, Squares shape, const float* in,
                         float* out) {
  extern __shared__ float4 shared[];
  auto* const values = reinterpret_cast<float*>(shared);
  float* const dots = values + vectors * shape.held.stride;
  const std::uint32_t pairs = vectors * (vectors - 1) / 2;
  for (std::size_t s = blockIdx.x; s < samples; s += gridDim.x) {
    CopyVectors<kWidth>(vectors, dim, shape.held, in + s * vectors * dim, values);
    __syncthreads();
    for (std::uint32_t p = threadIdx.x; p < shape.squares; p += blockDim.x) {
      const std::uint32_t larger = LargerOf(p), one = larger - 1, other = p - larger * one / 2;
      const float *a[kSide], *b[kSide];
#pragma unroll
      for (std::uint32_t k = 0; k < kSide; ++k) {
        a[k] = values + min(one + k * shape.classes, vectors - 1) * shape.held.stride;
        b[k] = values + min(other + k * shape.classes, vectors - 1) * shape.held.stride;
      }
      const Products products(dim, a, b);
#pragma unroll
      for (std::uint32_t k = 0; k < kSide; ++k)
#pragma unroll
        for (std::uint32_t l = 0; l < kSide; ++l) {
          const std::uint32_t i = one + k * shape.classes, j = other + l * shape.classes;
          const std::uint32_t large = max(i, j), small = min(i, j);
          if (large < vectors && (one != other || k > l)) dots[large * (large - 1) / 2 + small] = products.of[k][l];
        }
    }
    __syncthreads();
    float* to = out + s * (std::size_t{dim} + pairs);
    for (std::uint32_t d = threadIdx.x; d < dim; d += blockDim.x) to[d] = values[d];
    for (std::uint32_t p = threadIdx.x; p < pairs; p += blockDim.x) to[dim + p] = dots[p];
    __syncthreads();  // before the next sample overwrites them
  }
}

// Backward: one thread per four columns of the gradients of kBand neighbouring vectors. The pairs' gradients are stored
// as the rows of the full symmetric matrix, cut into bands, each padded to 48 bytes. DLRM's 27 vectors are three bands.
constexpr std::uint32_t kBand = 9, kBandFloats = 12;

struct Bands {
  SharedLayout held;
  std::uint32_t bands;
  std::size_t shared_bytes;

  Bands(std::uint32_t vectors, std::uint32_t dim)
      : held(dim, false),
        bands((vectors + kBand - 1) / kBand),
        shared_bytes(std::size_t{vectors} * (held.stride + std::size_t{bands} * kBandFloats) * sizeof(float)) {}

  // Offset of the gradient of <i, j> in row j.
  __device__ std::uint32_t At(std::uint32_t j, std::uint32_t i) const {
    return (j * bands + i / kBand) * kBandFloats + i % kBand;
  }
};

__device__ inline void CopyPairs(std::uint32_t vectors, const Bands& shape, const float* of_pairs, float* to) {
  for (std::uint32_t i = threadIdx.x; i < vectors; i += blockDim.x) to[shape.At(i, i)] = 0.0f;
  constexpr unsigned kAtOnce = 4;
  float grads[kAtOnce];
  const auto load = [&](unsigned k, std::uint32_t p) { grads[k] = LoadGlobal<1>(of_pairs + p).v[0]; };
  const auto store = [&](unsigned k, std::uint32_t p) {
    const std::uint32_t i = LargerOf(p), j = p - i * (i - 1) / 2;
    to[shape.At(j, i)] = to[shape.At(i, j)] = grads[k];
  };
  InBatches<kAtOnce>(vectors * (vectors - 1) / 2, load, store);
}

template <int kWidth>
__global__ void __launch_bounds__(kBlock)
    BackwardBandsKernel(std::size_t samples, std::uint32_t vectors, std::uint32_t dim, Bands shape, const float* in,
                        const float* grad_out, float* grad_in) {
  extern __shared__ float4 shared[];
  auto* const values = reinterpret_cast<float*>(shared);
  float* const pairs = values + vectors * shape.held.stride;
  const std::size_t width = std::size_t{dim} + vectors * (vectors - 1) / 2;
  for (std::size_t s = blockIdx.x; s < samples; s += gridDim.x) {
    const float* first = grad_out + s * width;
    CopyVectors<kWidth>(vectors, dim, shape.held, in + s * vectors * dim, values);
    CopyPairs(vectors, shape, first + dim, pairs);
    __syncthreads();
    for (std::uint32_t t = threadIdx.x; t < shape.bands * shape.held.fours.by(); t += blockDim.x) {
      const std::uint32_t band = shape.held.fours.Quotient(t), d = (t - band * shape.held.fours.by()) * 4;
      Floats<4> sums[kBand] = {};
#pragma unroll 3
      for (std::uint32_t j = 0; j < vectors; ++j) {
        const Floats<4> value = Load<4>(values + j * shape.held.stride + d);
        Floats<4> grads[kBandFloats / 4];
#pragma unroll
        for (std::uint32_t r = 0; r < kBandFloats; r += 4)
          grads[r / 4] = Load<4>(pairs + (j * shape.bands + band) * kBandFloats + r);
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
          Floats<4> term = value;
          term.Multiply(grads[r / 4].v[r % 4]);
          sums[r].Add(term);
        }
      }
      if (band == 0) {
#pragma unroll
        for (unsigned k = 0; k < 4; ++k)
          if (d + k < dim) sums[0].v[k] = __ldg(first + d + k) + sums[0].v[k];
      }
      float* to = grad_in + (s * vectors + band * kBand) * dim + d;
#pragma unroll
      for (std::uint32_t r = 0; r < kBand; ++r, to += dim)
        if (band * kBand + r < vectors) {
          if constexpr (kWidth == 4) {
            Store(to, sums[r]);
          } else {
#pragma unroll
            for (unsigned k = 0; k < 4; ++k)
              if (d + k < dim) to[k] = sums[r].v[k];
          }
        }
    }
    __syncthreads();
  }
}

// Requests shared memory for launches of the kernel, as is required beyond 48 KiB. Requests the GPU's maximum, because
// other threads and recorded work may need more. Sets *enough to whether the GPU has `bytes`.
template <typename Kernel>
cudaError_t RequestShared(Kernel* kernel, std::size_t bytes, bool* enough) {
  constexpr std::size_t kDefaultMax = std::size_t{48} << 10;
  *enough = bytes <= kDefaultMax;
  if (*enough) return cudaSuccess;
  int device = 0, most = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
      error != cudaSuccess)
    return error;
  *enough = bytes <= static_cast<std::size_t>(most);
  if (!*enough) return cudaSuccess;
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

unsigned BlocksOf(std::size_t samples) { return static_cast<unsigned>(std::min(samples, BlocksMax())); }

// As many threads as there is work for, in whole warps.
unsigned ThreadsFor(std::uint32_t work) { return std::min((work + kWarp - 1) / kWarp * kWarp, kBlock); }

}  // namespace

cudaError_t InteractionForward(cudaStream_t stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                               const float* in, float* out) {
  if (samples == 0 || dim == 0) return cudaSuccess;
  const Squares shape(vectors, dim);
  const auto kernel = dim % 4 == 0 && IsAligned16(in) ? &ForwardSquaresKernel<4> : &ForwardSquaresKernel<1>;
  bool fits = false;
  if (const cudaError_t error = RequestShared(kernel, shape.shared_bytes, &fits); error != cudaSuccess) return error;
  if (fits)
    kernel<<<BlocksOf(samples), ThreadsFor(shape.squares), shape.shared_bytes, stream>>>(samples, vectors, dim, shape,
                                                                                         in, out);
  else
    ForwardKernel<<<BlocksOf(samples), kBlock, 0, stream>>>(samples, vectors, dim, in, out);
  return cudaGetLastError();
}

cudaError_t InteractionBackward(cudaStream_t stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                                const float* in, const float* grad_out, float* grad_in) {
  if (samples == 0 || dim == 0) return cudaSuccess;
  const Bands shape(vectors, dim);
  const unsigned threads = ThreadsFor(shape.bands * shape.held.fours.by());
  const bool aligned = dim % 4 == 0 && IsAligned16(in) && IsAligned16(grad_in);
  const auto kernel = aligned ? &BackwardBandsKernel<4> : &BackwardBandsKernel<1>;
  bool fits = false;
  if (const cudaError_t error = RequestShared(kernel, shape.shared_bytes, &fits); error != cudaSuccess) return error;
  if (fits)
    kernel<<<BlocksOf(samples), threads, shape.shared_bytes, stream>>>(samples, vectors, dim, shape, in, grad_out,
                                                                       grad_in);
  else
    BackwardKernel<<<BlocksOf(samples), kBlock, 0, stream>>>(samples, vectors, dim, in, grad_out, grad_in);
  return cudaGetLastError();
}

}  // namespace tarn::kernels::cuda

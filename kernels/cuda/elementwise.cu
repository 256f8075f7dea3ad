// Flat arrays, four floats at a time if alignment allows. Each element is computed with the operations and roundings of
// the CPU's code, so the bits are the same.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise.h"

namespace tarn::kernels::cuda {
namespace {

__global__ void EmptyKernel() {}

// Calls f.At<4>(i) for elements i ... i + 3 if `aligned`, and f.At<1>(i) for the remaining elements.
template <typename F>
cudaError_t ForFours(cudaStream_t stream, std::size_t n, bool aligned, F f) {
  const std::size_t done = aligned ? n / 4 * 4 : 0;
  if (const cudaError_t error = ForEach(stream, done / 4, [=] __device__(std::size_t i) { f.template At<4>(4 * i); });
      error != cudaSuccess)
    return error;
  return ForEach(stream, n - done, [=] __device__(std::size_t i) { f.template At<1>(done + i); });
}

template <typename F>
struct MapOne {
  float* out;
  F f;

  template <int kWidth>
  __device__ void At(std::size_t i) const {
    Floats<kWidth> v = Load<kWidth>(out + i);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v.v[k] = f(v.v[k]);
    Store(out + i, v);
  }
};

template <typename F>
struct MapTwo {
  const float* in;
  float* out;
  F f;

  template <int kWidth>
  __device__ void At(std::size_t i) const {
    const Floats<kWidth> a = Load<kWidth>(in + i);
    Floats<kWidth> b = Load<kWidth>(out + i);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) b.v[k] = f(a.v[k], b.v[k]);
    Store(out + i, b);
  }
};

// out[i] = f(out[i]).
template <typename F>
cudaError_t Map(cudaStream_t stream, std::size_t n, float* out, F f) {
  return ForFours(stream, n, IsAligned16(out), MapOne<F>{out, f});
}

// out[i] = f(in[i], out[i]).
template <typename F>
cudaError_t Map2(cudaStream_t stream, std::size_t n, const float* in, float* out, F f) {
  return ForFours(stream, n, IsAligned16(in) && IsAligned16(out), MapTwo<F>{in, out, f});
}

struct FillAt {
  float value;
  float* out;

  template <int kWidth>
  __device__ void At(std::size_t i) const {
    Floats<kWidth> v;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v.v[k] = value;
    Store(out + i, v);
  }
};

struct CrossForwardAt {
  const float *x0, *y, *x;
  float* out;

  template <int kWidth>
  __device__ void At(std::size_t i) const {
    const Floats<kWidth> first = Load<kWidth>(x0 + i), of_layer = Load<kWidth>(y + i), before = Load<kWidth>(x + i);
    Floats<kWidth> v;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v.v[k] = first.v[k] * of_layer.v[k] + before.v[k];
    Store(out + i, v);
  }
};

struct CrossBackwardAt {
  const float *x0, *y, *grad_out;
  float *grad_y, *grad_x0;

  template <int kWidth>
  __device__ void At(std::size_t i) const {
    const Floats<kWidth> g = Load<kWidth>(grad_out + i), first = Load<kWidth>(x0 + i), of_layer = Load<kWidth>(y + i);
    Floats<kWidth> of_y, of_x0 = Load<kWidth>(grad_x0 + i);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      of_y.v[k] = g.v[k] * first.v[k];
      of_x0.v[k] += g.v[k] * of_layer.v[k];
    }
    Store(grad_y + i, of_y);
    Store(grad_x0 + i, of_x0);
  }
};

// One block per part for any n, and the same order for any alignment of `in`: a thread sums groups of four, then the
// remaining elements one by one.
template <bool kAligned>
__global__ void __launch_bounds__(kBlock) SquaredNormKernel(std::size_t n, const float* in, double* parts) {
  double sum = 0;
  const auto add = [&sum](float v) { sum += double(v) * double(v); };
#pragma unroll 4
  for (std::size_t i = 4 * FirstThread(); i < n / 4 * 4; i += 4 * Threads()) {
    Floats<4> four;
    if constexpr (kAligned) {
      four = LoadConstant<4>(in + i);
    } else {
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) four.v[k] = __ldg(in + i + k);
    }
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) add(four.v[k]);
  }
  if (const std::size_t i = n / 4 * 4 + FirstThread(); i < n) add(in[i]);
  const double total = SumOfBlock(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] += total;
}

__global__ void ClipScaleKernel(double* parts, float unit, float norm_max, float* factor) {
  double sum = 0;
  for (std::size_t p = threadIdx.x; p < kNormParts; p += kBlock) sum += parts[p];
  const double total = SumOfBlock(sum);
  if (threadIdx.x != 0) return;
  parts[0] = total;
  const double norm = sqrt(total) / double(unit);
  double scale = 1.0;
  if (norm_max != 0.0f && !(norm <= double(norm_max))) scale = isfinite(norm) ? double(norm_max) / norm : NAN;
  *factor = float(scale / double(unit));
}

}  // namespace

cudaError_t AddSquaredNorm(cudaStream_t stream, std::size_t n, const float* in, double* parts) {
  if (n == 0) return cudaSuccess;
  if (IsAligned16(in))
    SquaredNormKernel<true><<<kNormParts, kBlock, 0, stream>>>(n, in, parts);
  else
    SquaredNormKernel<false><<<kNormParts, kBlock, 0, stream>>>(n, in, parts);
  return cudaGetLastError();
}

cudaError_t ClipScale(cudaStream_t stream, double* parts, float unit, float norm_max, float* factor) {
  ClipScaleKernel<<<1, kBlock, 0, stream>>>(parts, unit, norm_max, factor);
  return cudaGetLastError();
}

cudaError_t ScaleByFactor(cudaStream_t stream, std::size_t n, const float* factor, float* out) {
  return Map(stream, n, out, [=] __device__(float v) { return v * *factor; });
}

cudaError_t FindKernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&EmptyKernel));
}

cudaError_t Fill(cudaStream_t stream, std::size_t n, float value, float* out) {
  return ForFours(stream, n, IsAligned16(out), FillAt{value, out});
}

cudaError_t Add(cudaStream_t stream, std::size_t n, const float* in, float* out) {
  return Map2(stream, n, in, out, [] __device__(float a, float b) { return b + a; });
}

cudaError_t Scale(cudaStream_t stream, std::size_t n, float factor, float* out) {
  return Map(stream, n, out, [=] __device__(float v) { return v * factor; });
}

cudaError_t Relu(cudaStream_t stream, std::size_t n, float* out) {
  return Map(stream, n, out, [] __device__(float v) { return v > 0.0f ? v : 0.0f; });
}

cudaError_t ReluBackward(cudaStream_t stream, std::size_t n, const float* y, float* dy) {
  return Map2(stream, n, y, dy, [] __device__(float a, float b) { return a == 0.0f ? 0.0f : b; });
}

cudaError_t CrossForward(cudaStream_t stream, std::size_t n, const float* x0, const float* y, const float* x,
                         float* out) {
  const bool aligned = IsAligned16(x0) && IsAligned16(y) && IsAligned16(x) && IsAligned16(out);
  return ForFours(stream, n, aligned, CrossForwardAt{x0, y, x, out});
}

cudaError_t CrossBackward(cudaStream_t stream, std::size_t n, const float* x0, const float* y, const float* grad_out,
                          float* grad_y, float* grad_x0) {
  const bool aligned =
      IsAligned16(x0) && IsAligned16(y) && IsAligned16(grad_out) && IsAligned16(grad_y) && IsAligned16(grad_x0);
  return ForFours(stream, n, aligned, CrossBackwardAt{x0, y, grad_out, grad_y, grad_x0});
}

}  // namespace tarn::kernels::cuda

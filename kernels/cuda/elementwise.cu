// Flat arrays: four floats at a time where the arrays allow it. Every element is computed by itself with the operations
// and the roundings of the CPU's code, so the bits are the same.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise.h"

namespace tarn::kernels::cuda {
namespace {

__device__ inline float4 Load4(const float* p, std::size_t i) { return reinterpret_cast<const float4*>(p)[i]; }
__device__ inline void Store4(float* p, std::size_t i, float4 v) { reinterpret_cast<float4*>(p)[i] = v; }

// out[i] = f(out[i]).
template <typename F>
cudaError_t Map(cudaStream_t stream, std::size_t n, float* out, F f) {
  const std::size_t fours = IsAligned16(out) ? n / 4 : 0;
  if (const cudaError_t error = ForEach(stream, fours,
                                        [=] __device__(std::size_t i) {
                                          const float4 v = Load4(out, i);
                                          Store4(out, i, {f(v.x), f(v.y), f(v.z), f(v.w)});
                                        });
      error != cudaSuccess)
    return error;
  return ForEach(stream, n - 4 * fours, [=] __device__(std::size_t i) { out[4 * fours + i] = f(out[4 * fours + i]); });
}

// out[i] = f(in[i], out[i]).
template <typename F>
cudaError_t Map2(cudaStream_t stream, std::size_t n, const float* in, float* out, F f) {
  const std::size_t fours = IsAligned16(in) && IsAligned16(out) ? n / 4 : 0;
  if (const cudaError_t error = ForEach(stream, fours,
                                        [=] __device__(std::size_t i) {
                                          const float4 a = Load4(in, i), b = Load4(out, i);
                                          Store4(out, i, {f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)});
                                        });
      error != cudaSuccess)
    return error;
  return ForEach(stream, n - 4 * fours,
                 [=] __device__(std::size_t i) { out[4 * fours + i] = f(in[4 * fours + i], out[4 * fours + i]); });
}

// As many blocks as there are parts, whatever n is.
__global__ void SquaredNormKernel(std::size_t n, const float* in, double* parts) {
  double sum = 0;
  for (std::size_t i = FirstThread(); i < n; i += Threads()) sum += double(in[i]) * double(in[i]);
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
  SquaredNormKernel<<<kNormParts, kBlock, 0, stream>>>(n, in, parts);
  return cudaGetLastError();
}

cudaError_t ClipScale(cudaStream_t stream, double* parts, float unit, float norm_max, float* factor) {
  ClipScaleKernel<<<1, kBlock, 0, stream>>>(parts, unit, norm_max, factor);
  return cudaGetLastError();
}

cudaError_t ScaleByFactor(cudaStream_t stream, std::size_t n, const float* factor, float* out) {
  return Map(stream, n, out, [=] __device__(float v) { return v * *factor; });
}

cudaError_t Fill(cudaStream_t stream, std::size_t n, float value, float* out) {
  return ForEach(stream, n, [=] __device__(std::size_t i) { out[i] = value; });
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
  return ForEach(stream, n, [=] __device__(std::size_t i) { out[i] = x0[i] * y[i] + x[i]; });
}

cudaError_t CrossBackward(cudaStream_t stream, std::size_t n, const float* x0, const float* y, const float* grad_out,
                          float* grad_y, float* grad_x0) {
  return ForEach(stream, n, [=] __device__(std::size_t i) {
    const float g = grad_out[i];
    grad_y[i] = g * x0[i];
    grad_x0[i] += g * y[i];
  });
}

}  // namespace tarn::kernels::cuda

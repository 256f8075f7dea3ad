// Neighbouring floats that a thread loads and stores together.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tarn::kernels::cuda {

// kWidth neighbouring floats: 4 that are aligned to 16 bytes in memory, or 1.
template <int kWidth>
struct Floats {
  float v[kWidth];

  __device__ void Add(const Floats& other) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v[k] += other.v[k];
  }
  // Adds if `condition`, without a branch.
  __device__ void AddIf(bool condition, const Floats& other) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float sum = v[k] + other.v[k];
      v[k] = condition ? sum : v[k];
    }
  }
  __device__ void Multiply(float factor) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v[k] *= factor;
  }
};

__device__ inline Floats<4> FromFour(const float4& four) { return {{four.x, four.y, four.z, four.w}}; }

template <int kWidth>
__device__ inline Floats<kWidth> Load(const float* from) {
  if constexpr (kWidth == 4)
    return FromFour(*reinterpret_cast<const float4*>(from));
  else
    return {{*from}};
}

// For memory that the kernel does not write.
template <int kWidth>
__device__ inline Floats<kWidth> LoadConstant(const float* from) {
  if constexpr (kWidth == 4)
    return FromFour(__ldg(reinterpret_cast<const float4*>(from)));
  else
    return {{__ldg(from)}};
}

template <int kWidth>
__device__ inline void Store(float* to, const Floats<kWidth>& floats) {
  if constexpr (kWidth == 4)
    *reinterpret_cast<float4*>(to) = {floats.v[0], floats.v[1], floats.v[2], floats.v[3]};
  else
    *to = floats.v[0];
}

// Load and Store for device memory only. The compiler splits some accesses of Load and Store into single floats, but
// not those of LoadGlobal and StoreGlobal.
template <int kWidth>
__device__ inline Floats<kWidth> LoadGlobal(const float* from) {
  if constexpr (kWidth == 4)
    return FromFour(__ldca(reinterpret_cast<const float4*>(from)));
  else
    return {{__ldca(from)}};
}

template <int kWidth>
__device__ inline void StoreGlobal(float* to, const Floats<kWidth>& floats) {
  if constexpr (kWidth == 4)
    __stwb(reinterpret_cast<float4*>(to), make_float4(floats.v[0], floats.v[1], floats.v[2], floats.v[3]));
  else
    *to = floats.v[0];
}

// The number of threads of a warp that share a row of `dim` floats, `width` floats each at a time: a power of two.
inline unsigned ThreadsOfRow(std::uint32_t dim, unsigned width) {
  unsigned threads = 1;
  while (threads < 32 && threads * width < dim) threads *= 2;
  return threads;
}

}  // namespace tarn::kernels::cuda

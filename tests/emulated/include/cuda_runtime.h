// The functions and variables of CUDA kernels, as far as tarn uses them.
#pragma once

#include <cmath>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "tests/emulated/kernel.h"

#define threadIdx (::emulated::ThreadIndex())
#define blockIdx (::emulated::BlockIndex())
#define blockDim (::emulated::BlockExtent())
#define gridDim (::emulated::GridExtent())

inline void __syncthreads() { emulated::SyncThreads(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated::Meet(mask, emulated::Meeting::kSync, 0, 0); }
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return emulated::Shuffle(mask, value, static_cast<unsigned>(lane) % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return emulated::Shuffle(mask, value, emulated::Lane() ^ static_cast<unsigned>(lanes));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(emulated::Meet(mask, emulated::Meeting::kBallot, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::Meet(mask, emulated::Meeting::kMax, value, 0));
}
[[noreturn]] inline void __trap() { emulated::Trap(); }
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
  return emulated::AtomicMin(at, value);
}

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldca(const T* p) {
  return *p;
}
template <typename T>
void __stwb(T* p, T v) {
  *p = v;
}
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline int __float2int_rn(float v) { return static_cast<int>(std::nearbyint(v)); }
inline int __ffs(unsigned v) { return __builtin_ffs(static_cast<int>(v)); }
inline unsigned __vcmpeq4(unsigned a, unsigned b) {
  unsigned out = 0;
  for (unsigned i = 0; i < 32; i += 8)
    if ((a >> i & 0xff) == (b >> i & 0xff)) out |= 0xffu << i;
  return out;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
using std::isfinite;

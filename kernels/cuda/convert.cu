// The 16-bit formats and int8 rows, with the results of kernels/convert.h and kernels/quantize.h. A NaN stays a NaN;
// its fraction bits are the GPU's.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/floats.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"

namespace tarn::kernels::cuda {
namespace {

struct alignas(16) EightHalves {
  std::uint16_t v[8];
};

// out[i] = half(in[i]), eight per thread if both arrays are aligned to 16 bytes.
template <typename F>
cudaError_t Narrow(cudaStream_t stream, std::size_t n, const float* in, std::uint16_t* out, F half) {
  const std::size_t eights = IsAligned16(in) && IsAligned16(out) ? n / 8 : 0, done = 8 * eights;
  const cudaError_t error = ForEach(stream, eights, [=] __device__(std::size_t i) {
    const Floats<4> low = LoadConstant<4>(in + 8 * i), high = LoadConstant<4>(in + 8 * i + 4);
    EightHalves halves;
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      halves.v[k] = half(low.v[k]);
      halves.v[4 + k] = half(high.v[k]);
    }
    reinterpret_cast<EightHalves*>(out)[i] = halves;
  });
  if (error != cudaSuccess) return error;
  return ForEach(stream, n - done, [=] __device__(std::size_t i) { out[done + i] = half(in[done + i]); });
}

// out[i] = whole(in[i]), likewise.
template <typename F>
cudaError_t Widen(cudaStream_t stream, std::size_t n, const std::uint16_t* in, float* out, F whole) {
  const std::size_t eights = IsAligned16(in) && IsAligned16(out) ? n / 8 : 0, done = 8 * eights;
  const cudaError_t error = ForEach(stream, eights, [=] __device__(std::size_t i) {
    const EightHalves halves = reinterpret_cast<const EightHalves*>(in)[i];
    Floats<4> low, high;
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      low.v[k] = whole(halves.v[k]);
      high.v[k] = whole(halves.v[4 + k]);
    }
    Store(out + 8 * i, low);
    Store(out + 8 * i + 4, high);
  });
  if (error != cudaSuccess) return error;
  return ForEach(stream, n - done, [=] __device__(std::size_t i) { out[done + i] = whole(in[done + i]); });
}

}  // namespace

cudaError_t FloatToBf16(cudaStream_t stream, std::size_t n, const float* in, std::uint16_t* out) {
  return Narrow(stream, n, in, out, [] __device__(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); });
}

cudaError_t Bf16ToFloat(cudaStream_t stream, std::size_t n, const std::uint16_t* in, float* out) {
  return Widen(stream, n, in, out,
               [] __device__(std::uint16_t v) { return __bfloat162float(__ushort_as_bfloat16(v)); });
}

cudaError_t FloatToFp16(cudaStream_t stream, std::size_t n, const float* in, std::uint16_t* out) {
  return Narrow(stream, n, in, out, [] __device__(float v) { return __half_as_ushort(__float2half_rn(v)); });
}

cudaError_t Fp16ToFloat(cudaStream_t stream, std::size_t n, const std::uint16_t* in, float* out) {
  return Widen(stream, n, in, out, [] __device__(std::uint16_t v) { return __half2float(__ushort_as_half(v)); });
}

// A row's scale may be unaligned, so four lanes copy its bytes one by one.
cudaError_t EncodeInt8Rows(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in, std::byte* out) {
  return ForEachRow(stream, n, [=] __device__(std::size_t row, unsigned lane) {
    constexpr std::uint32_t kInfinity = 0x7f800000u;
    const float* x = in + row * dim;
    std::byte* to = out + row * (sizeof(float) + dim);
    std::uint32_t largest = 0;
    for (std::uint32_t j = lane; j < dim; j += kWarp) largest = max(largest, __float_as_uint(x[j]) & 0x7fffffffu);
    largest = __reduce_max_sync(0xffffffffu, largest);
    const float factor = 127.0f / __uint_as_float(largest);
    float scale = __uint_as_float(largest) / 127.0f;
    if (__float_as_uint(scale * 127.0f) >= kInfinity) scale = __uint_as_float(__float_as_uint(scale) - 1);
    if (__float_as_uint(factor) >= kInfinity) scale = 0.0f;
    if (largest >= kInfinity) scale = __uint_as_float(0x7fc00000u);
    if (lane < 4) to[lane] = static_cast<std::byte>(__float_as_uint(scale) >> (8 * lane));
    for (std::uint32_t j = lane; j < dim; j += kWarp)
      to[4 + j] = static_cast<std::byte>(scale > 0.0f ? __float2int_rn(x[j] * factor) : 0);
  });
}

cudaError_t DecodeInt8Rows(cudaStream_t stream, std::uint32_t dim, std::size_t n, const std::byte* in, float* out) {
  return ForEachRow(stream, n, [=] __device__(std::size_t row, unsigned lane) {
    const std::byte* from = in + row * (sizeof(float) + dim);
    std::uint32_t bits = 0;
    for (int b = 0; b < 4; ++b) bits |= static_cast<std::uint32_t>(from[b]) << (8 * b);
    const float scale = __uint_as_float(bits);
    for (std::uint32_t j = lane; j < dim; j += kWarp)
      out[row * dim + j] = scale * static_cast<float>(static_cast<std::int8_t>(from[4 + j]));
  });
}

}  // namespace tarn::kernels::cuda

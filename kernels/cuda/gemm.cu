// The passes around matrix products. Computes in fp32, whatever the element type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/grid.cuh"

namespace tarn::kernels::cuda {
namespace {

__device__ inline float Load(const float* p) { return *p; }
__device__ inline float Load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ inline float Load(const __half* p) { return __half2float(*p); }
__device__ inline void Store(float* p, float v) { *p = v; }
__device__ inline void Store(__nv_bfloat16* p, float v) { *p = __float2bfloat16_rn(v); }
__device__ inline void Store(__half* p, float v) { *p = __float2half_rn(v); }

// Calls f with a null pointer to the element type.
template <typename F>
cudaError_t ForElement(Element element, F f) {
  switch (element) {
    case Element::kFp32: return f(static_cast<float*>(nullptr));
    case Element::kBf16: return f(static_cast<__nv_bfloat16*>(nullptr));
    case Element::kFp16: return f(static_cast<__half*>(nullptr));
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t RoundTo(cudaStream_t stream, std::size_t rows, std::size_t columns, const float* in, std::size_t in_stride,
                    T* out, std::size_t out_stride) {
  return ForEachRow(stream, rows, [=] __device__(std::size_t row, unsigned lane) {
    for (std::size_t column = lane; column < columns; column += kWarp)
      Store(out + row * out_stride + column, in[row * in_stride + column]);
  });
}

template <typename T>
cudaError_t PadTo(cudaStream_t stream, std::size_t rows, std::size_t columns, const float* in, std::size_t in_stride,
                  T* out, std::size_t padded_rows, std::size_t padded_columns) {
  if (padded_columns == 1)  // of a vector; neighbouring threads handle neighbouring elements
    return ForEach(stream, padded_rows,
                   [=] __device__(std::size_t row) { Store(out + row, row < rows ? in[row * in_stride] : 0.0f); });
  return ForEachRow(stream, padded_rows, [=] __device__(std::size_t row, unsigned lane) {
    for (std::size_t column = lane; column < padded_columns; column += kWarp)
      Store(out + row * padded_columns + column, row < rows && column < columns ? in[row * in_stride + column] : 0.0f);
  });
}

template <typename T>
cudaError_t UnpadFrom(cudaStream_t stream, std::size_t rows, std::size_t columns, const T* in,
                      std::size_t padded_columns, float* out) {
  return ForEachRow(stream, rows, [=] __device__(std::size_t row, unsigned lane) {
    for (std::size_t column = lane; column < columns; column += kWarp)
      out[row * columns + column] = Load(in + row * padded_columns + column);
  });
}

template <typename T>
cudaError_t ScaleOf(cudaStream_t stream, std::size_t rows, std::size_t columns, float factor, T* c,
                    std::size_t stride) {
  return ForEachRow(stream, rows, [=] __device__(std::size_t row, unsigned lane) {
    for (std::size_t column = lane; column < columns; column += kWarp) {
      T* at = c + row * stride + column;
      Store(at, factor == 0.0f ? 0.0f : factor * Load(at));
    }
  });
}

// One warp per row, 32 columns at a time: one word of the mask.
template <typename T>
cudaError_t AddBiasTo(cudaStream_t stream, std::size_t rows, std::size_t columns, T* c, std::size_t stride,
                      const T* bias, bool relu, std::uint32_t* mask) {
  const std::size_t mask_stride = ReluMaskStride(columns);
  const std::size_t words = mask == nullptr ? (columns + kWarp - 1) / kWarp : mask_stride;
  return ForEachRow(stream, rows, [=] __device__(std::size_t row, unsigned lane) {
    for (std::size_t word = 0; word < words; ++word) {
      const std::size_t column = word * kWarp + lane;
      float v = 0.0f;
      if (column < columns) {
        T* at = c + row * stride + column;
        v = Load(at);
        if (bias != nullptr) v += Load(bias + column);
        if (relu) v = v > 0.0f ? v : 0.0f;
        Store(at, v);
      }
      const std::uint32_t bits = __ballot_sync(0xffffffffu, v > 0.0f);
      if (mask != nullptr && lane == 0) mask[row * mask_stride + word] = bits;
    }
  });
}

template <typename T>
cudaError_t ApplyMaskTo(cudaStream_t stream, std::size_t rows, std::size_t columns, T* c, std::size_t stride,
                        const std::uint32_t* mask) {
  const std::size_t mask_stride = ReluMaskStride(columns);
  return ForEachRow(stream, rows, [=] __device__(std::size_t row, unsigned lane) {
    for (std::size_t column = lane; column < columns; column += kWarp)
      if ((mask[row * mask_stride + column / kWarp] >> lane & 1) == 0) Store(c + row * stride + column, 0.0f);
  });
}

constexpr unsigned kTile = 32;                // columns of a block
constexpr unsigned kStrips = kBlock / kTile;  // rows that a block sums in parallel

// Block (x, y): the sums of 32 columns over slice y of the rows.
template <typename T>
__global__ void SumSlices(std::size_t rows, std::size_t columns, const T* in, std::size_t stride,
                          std::size_t slice_rows, float* partial) {
  __shared__ float sums[kStrips][kTile];
  const unsigned tile_column = threadIdx.x % kTile, strip = threadIdx.x / kTile;
  const std::size_t column = std::size_t{blockIdx.x} * kTile + tile_column;
  const std::size_t first = blockIdx.y * slice_rows, last = min(rows, first + slice_rows);
  float sum = 0.0f;
  if (column < columns)
    for (std::size_t row = first + strip; row < last; row += kStrips) sum += Load(in + row * stride + column);
  sums[strip][tile_column] = sum;
  __syncthreads();
  if (strip != 0 || column >= columns) return;
  for (unsigned s = 1; s < kStrips; ++s) sum += sums[s][tile_column];
  partial[blockIdx.y * columns + column] = sum;
}

template <typename T>
cudaError_t SumPartial(cudaStream_t stream, std::size_t slices, std::size_t columns, const float* partial, T* out) {
  return ForEach(stream, columns, [=] __device__(std::size_t column) {
    float sum = 0.0f;
    for (std::size_t slice = 0; slice < slices; ++slice) sum += partial[slice * columns + column];
    Store(out + column, sum);
  });
}

}  // namespace

cudaError_t RoundMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, const float* in,
                        std::size_t in_stride, Element element, std::uint16_t* out, std::size_t out_stride) {
  return ForElement(element, [=](auto* type) {
    return RoundTo(stream, rows, columns, in, in_stride, reinterpret_cast<decltype(type)>(out), out_stride);
  });
}

cudaError_t PadMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, const float* in,
                      std::size_t in_stride, Element element, void* out, std::size_t padded_rows,
                      std::size_t padded_columns) {
  return ForElement(element, [=](auto* type) {
    return PadTo(stream, rows, columns, in, in_stride, static_cast<decltype(type)>(out), padded_rows, padded_columns);
  });
}

cudaError_t UnpadMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, const void* in, Element element,
                        std::size_t padded_columns, float* out) {
  return ForElement(element, [=](auto* type) {
    return UnpadFrom(stream, rows, columns, static_cast<decltype(type)>(const_cast<void*>(in)), padded_columns, out);
  });
}

cudaError_t ScaleMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, float factor,
                        const DeviceMatrix& c) {
  return ForElement(c.element, [&](auto* type) {
    return ScaleOf(stream, rows, columns, factor, static_cast<decltype(type)>(c.data), c.stride);
  });
}

cudaError_t AddBias(cudaStream_t stream, std::size_t rows, std::size_t columns, const DeviceMatrix& c, const void* bias,
                    bool relu, std::uint32_t* mask) {
  return ForElement(c.element, [&](auto* type) {
    using Pointer = decltype(type);
    return AddBiasTo(stream, rows, columns, static_cast<Pointer>(c.data), c.stride,
                     static_cast<Pointer>(const_cast<void*>(bias)), relu, mask);
  });
}

cudaError_t ApplyMask(cudaStream_t stream, std::size_t rows, std::size_t columns, const DeviceMatrix& c,
                      const std::uint32_t* mask) {
  return ForElement(c.element, [&](auto* type) {
    return ApplyMaskTo(stream, rows, columns, static_cast<decltype(type)>(c.data), c.stride, mask);
  });
}

cudaError_t SumColumns(cudaStream_t stream, std::size_t rows, std::size_t columns, const void* in, Element in_element,
                       std::size_t stride, void* out, Element out_element, float* partial, std::size_t partial_floats) {
  if (columns == 0) return cudaSuccess;
  constexpr std::size_t kSliceRows = 256, kSlicesMax = 1024;
  const std::size_t slices_max = std::clamp<std::size_t>(partial_floats / columns, 1, kSlicesMax);
  const std::size_t slices = std::clamp<std::size_t>((rows + kSliceRows - 1) / kSliceRows, 1, slices_max);
  const std::size_t slice_rows = (rows + slices - 1) / slices;
  const dim3 grid(static_cast<unsigned>((columns + kTile - 1) / kTile), static_cast<unsigned>(slices));
  const cudaError_t error = ForElement(in_element, [&](auto* type) {
    SumSlices<<<grid, kBlock, 0, stream>>>(rows, columns, static_cast<decltype(type)>(const_cast<void*>(in)), stride,
                                           slice_rows, partial);
    return cudaGetLastError();
  });
  if (error != cudaSuccess) return error;
  return ForElement(out_element, [&](auto* type) {
    return SumPartial(stream, slices, columns, partial, static_cast<decltype(type)>(out));
  });
}

}  // namespace tarn::kernels::cuda

// Launches for matrix products besides cuBLASLt's, with the conventions of kernels/cuda/launch.h. Matrices are
// row-major, strides are in elements.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device_gemm.h"

namespace tarn::kernels::cuda {

// Rounds a matrix of floats to 16 bits.
cudaError_t RoundMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, const float* in,
                        std::size_t in_stride, Element element, std::uint16_t* out, std::size_t out_stride);

// As PadMatrix and UnpadMatrix of kernels/device_gemm.h.
cudaError_t PadMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, const float* in,
                      std::size_t in_stride, Element element, void* out, std::size_t padded_rows,
                      std::size_t padded_columns);
cudaError_t UnpadMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, const void* in, Element element,
                        std::size_t padded_columns, float* out);

// c *= factor; 0 writes without reading.
cudaError_t ScaleMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns, float factor,
                        const DeviceMatrix& c);

// c += bias, if there is one; then, if relu, max(c, 0); then writes the mask, if there is one.
cudaError_t AddBias(cudaStream_t stream, std::size_t rows, std::size_t columns, const DeviceMatrix& c, const void* bias,
                    bool relu, std::uint32_t* mask);

// c = 0 where the mask's bit is 0.
cudaError_t ApplyMask(cudaStream_t stream, std::size_t rows, std::size_t columns, const DeviceMatrix& c,
                      const std::uint32_t* mask);

// out[j]: the sum of column j of `in`, in a fixed order. `partial` is working memory of partial_floats floats, at least
// `columns`.
cudaError_t SumColumns(cudaStream_t stream, std::size_t rows, std::size_t columns, const void* in, Element in_element,
                       std::size_t stride, void* out, Element out_element, float* partial, std::size_t partial_floats);

}  // namespace tarn::kernels::cuda

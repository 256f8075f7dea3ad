// The launches behind the operations of kernels/*.h that take a Stream: what kernels/cuda/*.cu implement and
// kernels/cuda/operations.cc calls. Plain types only, since nvcc reads this with an older C++ than ours. All pointers
// are device memory unless said. Each returns the launch's error.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tarn::kernels::cuda {

// elementwise.cu
cudaError_t Fill(cudaStream_t stream, std::size_t n, float value, float* out);
cudaError_t Add(cudaStream_t stream, std::size_t n, const float* in, float* out);
cudaError_t Scale(cudaStream_t stream, std::size_t n, float factor, float* out);
cudaError_t Axpy(cudaStream_t stream, std::size_t n, float factor, const float* in, float* out);
cudaError_t Relu(cudaStream_t stream, std::size_t n, float* out);
cudaError_t ReluBackward(cudaStream_t stream, std::size_t n, const float* y, float* dy);
cudaError_t CrossForward(cudaStream_t stream, std::size_t n, const float* x0, const float* y, const float* x,
                         float* out);
cudaError_t CrossBackward(cudaStream_t stream, std::size_t n, const float* x0, const float* y, const float* grad_out,
                          float* grad_y, float* grad_x0);

// convert.cu
cudaError_t FloatToBf16(cudaStream_t stream, std::size_t n, const float* in, std::uint16_t* out);
cudaError_t Bf16ToFloat(cudaStream_t stream, std::size_t n, const std::uint16_t* in, float* out);
cudaError_t FloatToFp16(cudaStream_t stream, std::size_t n, const float* in, std::uint16_t* out);
cudaError_t Fp16ToFloat(cudaStream_t stream, std::size_t n, const std::uint16_t* in, float* out);
cudaError_t EncodeInt8Rows(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in, std::byte* out);
cudaError_t DecodeInt8Rows(cudaStream_t stream, std::uint32_t dim, std::size_t n, const std::byte* in, float* out);

// rows.cu
cudaError_t GatherByIndex(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in,
                          const std::uint32_t* index, float* out);
cudaError_t ScatterByIndex(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* in,
                           const std::uint32_t* index, float* out);
cudaError_t EmbeddingBagForward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                                const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights,
                                float* out);
cudaError_t EmbeddingConcatForward(cudaStream_t stream, std::size_t samples, std::uint32_t fields, std::uint32_t dim,
                                   const float* rows, const std::uint32_t* inverse, float* out, std::size_t out_stride);

// interaction.cu
cudaError_t InteractionForward(cudaStream_t stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                               const float* in, float* out);
cudaError_t InteractionBackward(cudaStream_t stream, std::size_t samples, std::uint32_t vectors, std::uint32_t dim,
                                const float* in, const float* grad_out, float* grad_in);

// optimizer.cu: as OptimizerSpec, with the rate of the clock
enum class Rule : int { kSgd, kMomentum, kNesterov, kAdagrad, kRowWiseAdagrad, kRmsProp, kAdam, kAdamW, kFtrl };
struct OptimizerStep {
  Rule rule = Rule::kSgd;
  float rate = 0, momentum = 0, rho = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  float ftrl_beta = 0, ftrl_l1 = 0, ftrl_l2 = 0, l2 = 0, clip_value = 0, clip_norm = 0;
};
cudaError_t ApplyOptimizer(cudaStream_t stream, const OptimizerStep& step, std::uint32_t dim, std::size_t n,
                           float* const* values, float* const* slots, const float* gradients);

}  // namespace tarn::kernels::cuda

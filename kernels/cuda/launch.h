// Kernel launches for the operations of kernels/*.h that take a Stream. kernels/cuda/*.cu implement them,
// kernels/cuda/*operations.cc call them. Plain types only, because nvcc compiles this header with an older C++ standard
// than the rest. All pointers are device memory unless stated otherwise. Each function returns the launch's error.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tarn::kernels::cuda {

// elementwise.cu
cudaError_t FindKernels();  // whether the calling thread's GPU and its driver can run this build's kernels
cudaError_t Fill(cudaStream_t stream, std::size_t n, float value, float* out);
cudaError_t Add(cudaStream_t stream, std::size_t n, const float* in, float* out);
cudaError_t Scale(cudaStream_t stream, std::size_t n, float factor, float* out);
cudaError_t Relu(cudaStream_t stream, std::size_t n, float* out);
cudaError_t ReluBackward(cudaStream_t stream, std::size_t n, const float* y, float* dy);
cudaError_t AddSquaredNorm(cudaStream_t stream, std::size_t n, const float* in, double* parts);
cudaError_t ClipScale(cudaStream_t stream, double* parts, float unit, float norm_max, float* factor);
cudaError_t ScaleByFactor(cudaStream_t stream, std::size_t n, const float* factor, float* out);
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
cudaError_t CopyColumns(cudaStream_t stream, std::size_t rows, std::uint32_t columns, const float* in,
                        std::size_t in_stride, float* out, std::size_t out_stride);
cudaError_t AddColumns(cudaStream_t stream, std::size_t rows, std::uint32_t columns, const float* in,
                       std::size_t in_stride, float* out, std::size_t out_stride);
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

// optimizer.cu. OptimizerStep: the settings of an OptimizerSpec, with the learning rate of the clock
enum class Rule : int { kSgd, kMomentum, kNesterov, kAdagrad, kRowWiseAdagrad, kRmsProp, kAdam, kAdamW, kFtrl };
struct OptimizerStep {
  Rule rule = Rule::kSgd;
  float rate = 0, momentum = 0, rho = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  float ftrl_beta = 0, ftrl_l1 = 0, ftrl_l2 = 0, l2 = 0, clip_value = 0, clip_norm = 0;
};
cudaError_t ApplyOptimizer(cudaStream_t stream, const OptimizerStep& step, std::uint32_t dim, std::size_t n,
                           float* const* values, float* const* slots, const float* gradients);

// sort.cu. SortBuffers: memory of a SortScratch; `keys` and `words` have one element for each item
struct SortBuffers {
  const std::uint32_t* identity = nullptr;  // 0, 1, 2, ...
  std::uint64_t* keys = nullptr;
  std::uint32_t* words = nullptr;
  void* temp = nullptr;  // CUB's
  std::size_t temp_bytes = 0;
};
// Device pointers of Segments (kernels/segments.h) for a batch of n occurrences. A position is an index into `order`.
struct SegmentsView {
  std::uint32_t n = 0;
  std::uint32_t* order = nullptr;      // the occurrences by row, ascending within one
  std::uint32_t* rows = nullptr;       // by position
  std::uint32_t* begins = nullptr;     // by row: its first position; undefined for rows without occurrences
  std::uint32_t* ends = nullptr;       // by row: one past its last position; likewise
  std::uint32_t* pieces = nullptr;     // the positions where pieces begin (kernels/cuda/pieces.h), ascending
  std::uint32_t* n_pieces = nullptr;   // number of pieces
  std::uint32_t* sample_of = nullptr;  // by occurrence; written by each backward pass of bags
  float* partials = nullptr;           // PieceSlots(n) rows
};
cudaError_t SortTempBytes(std::size_t items, std::size_t* bytes);
cudaError_t FillIdentity(cudaStream_t stream, std::size_t n, std::uint32_t* out);
cudaError_t UniqueKeys(cudaStream_t stream, const std::uint64_t* keys, std::uint64_t* unique, std::uint32_t* inverse,
                       std::uint32_t* n_unique, const SortBuffers& sort, const SegmentsView& to);
cudaError_t GroupByRow(cudaStream_t stream, const std::uint32_t* inverse, std::size_t n_rows, const SortBuffers& sort,
                       const SegmentsView& to);
cudaError_t GroupByPartition(cudaStream_t stream, std::size_t n, const std::uint32_t* partition_of,
                             std::uint32_t n_partitions, std::uint32_t* permutation, std::uint32_t* offsets,
                             const SortBuffers& sort);
cudaError_t TopK(cudaStream_t stream, std::size_t n, std::size_t k, const float* in, std::uint32_t* index,
                 float* values, const SortBuffers& sort);
cudaError_t RowNorms(cudaStream_t stream, std::uint32_t dim, std::size_t n, const float* rows, float* norms);

// positions.cu
cudaError_t PositionsOf(cudaStream_t stream, std::size_t n, const std::uint64_t* keys, std::uint64_t salt,
                        std::uint64_t* positions);
cudaError_t KeysAt(cudaStream_t stream, std::size_t n, const std::uint64_t* positions, std::uint64_t salt,
                   std::uint64_t* keys);

// embedding.cu
cudaError_t BiasForward(cudaStream_t stream, std::size_t samples, const float* rows, const std::uint32_t* row,
                        float* out);
cudaError_t BiasBackward(cudaStream_t stream, std::size_t samples, const float* grad_out, const std::uint32_t* row,
                         float* grad_rows);
cudaError_t SampleOf(cudaStream_t stream, std::size_t samples, const std::uint32_t* offsets, std::uint32_t* sample_of);
cudaError_t EmbeddingBagBackward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* grad_out,
                                 const std::uint32_t* offsets, const float* weights, const SegmentsView& segments,
                                 float* grad_rows);
cudaError_t EmbeddingConcatBackward(cudaStream_t stream, std::uint32_t fields, std::uint32_t dim, const float* grad_out,
                                    std::size_t out_stride, const SegmentsView& segments, float* grad_rows);

// fm.cu
cudaError_t FmForward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                      const std::uint32_t* inverse, const std::uint32_t* offsets, const float* weights, float* out,
                      float* sums);
cudaError_t FmBackward(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                       const std::uint32_t* offsets, const float* weights, const float* grad_out, const float* sums,
                       const SegmentsView& segments, float* grad_rows);
cudaError_t FmBackwardOfOwnRows(cudaStream_t stream, std::size_t samples, std::uint32_t dim, const float* rows,
                                const std::uint32_t* offsets, const float* weights, const float* grad_out,
                                const float* sums, float* grad_rows);

// loss.cu
cudaError_t LogisticGradient(cudaStream_t stream, std::size_t n, const float* logits, const float* labels, float scale,
                             float* grad);
cudaError_t SoftmaxCrossEntropyByRow(cudaStream_t stream, std::size_t n, std::uint32_t classes, const float* logits,
                                     const float* labels, float scale, float* grad, double* losses,
                                     std::uint32_t* correct);

}  // namespace tarn::kernels::cuda

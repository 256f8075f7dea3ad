// The inside of a stream, for kernels/cuda/*.cc.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/stream.h"

namespace tarn::kernels {

struct GemmState;  // kernels/cuda/gemm_state.h

struct Stream::Native {
  Native();
  ~Native();
  // Makes the GPU that of the calling thread.
  void Use();
  // Keeps the first failure for Wait. The next launch asks CUDA for the last error: it does not find this one again.
  void Note(cudaError_t error, const char* operation) {
    if (error == cudaSuccess) return;
    cudaGetLastError();
    Note(cudaGetErrorString(error), operation);
  }
  void Note(cublasStatus_t status, const char* operation) {
    if (status != CUBLAS_STATUS_SUCCESS) Note(cublasLtGetStatusString(status), operation);
  }
  void Note(std::string why, const char* operation) {
    if (failed != nullptr) return;
    failed = operation;
    reason = std::move(why);
  }
  // "no memory for WHAT: N bytes asked for, M of L free: REASON"; later calls do not see this error again.
  std::string NoMemory(std::string_view what, std::size_t bytes, cudaError_t error) const;

  int device = 0;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  void* workspace = nullptr;  // of matrix products
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  std::unique_ptr<GemmState> gemm;
  const char* failed = nullptr;  // operation
  std::string reason;
};

}  // namespace tarn::kernels

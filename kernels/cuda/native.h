// The inside of a stream, for kernels/cuda/*.cc.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/stream.h"

namespace tarn::kernels {

struct Stream::Native {
  ~Native();
  // Keeps the first failure for Wait.
  void Note(cudaError_t error, const char* operation) {
    if (error != cudaSuccess) Keep(operation, cudaGetErrorString(error));
  }
  void Note(cublasStatus_t status, const char* operation) {
    if (status != CUBLAS_STATUS_SUCCESS) Keep(operation, cublasLtGetStatusString(status));
  }

  int device = 0;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t blas = nullptr;
  void* workspace = nullptr;  // of matrix products
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  const char* failed = nullptr;  // operation
  const char* reason = nullptr;

 private:
  void Keep(const char* operation, const char* why) {
    if (failed != nullptr) return;
    failed = operation;
    reason = why;
  }
};

}  // namespace tarn::kernels

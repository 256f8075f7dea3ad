// The inside of a stream, for kernels/cuda/*.cc.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
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
  // Keeps the first failure for Wait. The next launch, which asks CUDA for its last error, is not blamed for it.
  void Note(cudaError_t error, const char* operation) {
    use.operations.fetch_add(1, std::memory_order_relaxed);
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
  // Whether work is being recorded (kernels/graph.h): then `what` is not to be done, and the recording is given up.
  bool Refuses(const char* what) {
    if (recording && refused == nullptr) refused = what;
    return recording;
  }
  // Looks whether the GPU has a pool of memory, and lets it keep what is given back: otherwise every wait returns it to
  // the driver, and the next allocation maps it again.
  void UsePool();
  // From the pool, or where there is none from the GPU; null after an error. What the stream has given back may be kept
  // for other sizes until it has come so far and somebody has waited: where there is no memory, that is done first.
  cudaError_t Allocate(std::size_t bytes, void** memory);
  // Behind what the stream has been given. Without a pool it waits for the GPU.
  cudaError_t Release(void* memory);
  // "no memory for WHAT: N bytes asked for, M of L free: REASON"; later calls do not see this error again.
  std::string NoMemory(std::string_view what, std::size_t bytes, cudaError_t error) const;

  // Of all streams (DeviceUse).
  static inline struct Use {
    std::atomic<std::uint64_t> operations, graphs, copies, bytes_to_device, bytes_to_host, bytes_within, waits,
        allocations;
    void Copy(std::atomic<std::uint64_t>* way, std::size_t bytes) {
      copies.fetch_add(1, std::memory_order_relaxed);
      way->fetch_add(bytes, std::memory_order_relaxed);
    }
  } use = {};

  int device = 0;
  cudaMemPool_t pool = nullptr;  // null: the GPU has none
  cudaStream_t stream = nullptr;
  cudaEvent_t given = nullptr;      // how far it has to be for those that wait for it
  cudaEvent_t told = nullptr;       // how far it was at the last Tell; null: there was none
  cublasLtHandle_t blas = nullptr;  // made with the workspace for the first matrix product
  void* workspace = nullptr;        // of matrix products
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  std::unique_ptr<GemmState> gemm;
  const char* failed = nullptr;  // operation
  std::string reason;
  bool recording = false;
  const char* refused = nullptr;     // what the recorded work asked for and cannot have, first
  std::uint64_t memory_version = 0;  // allocations and releases
};

}  // namespace tarn::kernels

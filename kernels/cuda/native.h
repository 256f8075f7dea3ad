// The internals of a stream, for kernels/cuda/*.cc.
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
  // Selects the GPU for the calling thread.
  void Use();
  // Keeps the first failure for Wait, and clears CUDA's pending error so that the next launch does not report it.
  // Counts the call in `use`, also if it failed.
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
  // Whether work is being recorded (kernels/graph.h). If so, the caller must not execute the operation, and the
  // recording fails with the reason `what`.
  bool Refuses(const char* what) {
    if (recording && refused == nullptr) refused = what;
    return recording;
  }
  // Uses the GPU's memory pool, if it has one, and lets the pool keep freed memory: otherwise every wait returns it to
  // the driver, and the next allocation maps it again.
  void UsePool();
  // Allocates from the pool, or from the GPU if there is none; null after an error. If there is no memory, waits for
  // the stream, returns the pool's unused memory to the driver, and tries again: the pool may still hold freed blocks
  // of other sizes.
  cudaError_t Allocate(std::size_t bytes, void** memory);
  // Frees after the work submitted so far. Without a pool it waits for the GPU.
  cudaError_t Release(void* memory);
  // "no memory for WHAT: N bytes asked for, M of L free: REASON". Clears the pending CUDA error.
  std::string NoMemory(std::string_view what, std::size_t bytes, cudaError_t error) const;

  // Counts of all streams (DeviceUse).
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
  cudaEvent_t given = nullptr;      // marks the work for which another stream waits
  cudaEvent_t notified = nullptr;   // marks the work before the last NotifyWhenDone; null: there was none
  cublasLtHandle_t blas = nullptr;  // made with the workspace for the first matrix product
  void* workspace = nullptr;        // of matrix products
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  std::unique_ptr<GemmState> gemm;
  const char* failed = nullptr;  // the first operation that failed; null: none
  std::string reason;            // why it failed
  bool recording = false;
  const char* refused = nullptr;     // the first operation that cannot be recorded
  std::uint64_t memory_version = 0;  // number of allocations and releases
};

}  // namespace tarn::kernels

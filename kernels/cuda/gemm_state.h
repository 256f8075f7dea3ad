// What a stream keeps of its matrix products, and how one is planned. Internal to kernels/cuda.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <memory>
#include <type_traits>

#include "kernels/cuda/native.h"
#include "kernels/gemm_algorithms.h"

namespace tarn::kernels {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* p) const {
    kDestroy(p);
  }
};
using LtOperation = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroyer<cublasLtMatmulDescDestroy>>;
using LtLayout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroyer<cublasLtMatrixLayoutDestroy>>;

// How a product is computed. The layouts are of the product's a, b and c; cuBLASLt gets b first.
struct GemmPlan {
  LtOperation operation;
  LtLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  bool fused = false;  // the epilogue
};

struct GemmState {
  explicit GemmState(cudaStream_t of) : stream(of) {}
  ~GemmState() {
    if (factors != nullptr) cudaFreeAsync(factors, stream);
  }
  GemmState(const GemmState&) = delete;
  GemmState& operator=(const GemmState&) = delete;

  static constexpr std::size_t kPlansMax = 1024;  // then all are made again

  cudaStream_t stream;
  std::map<GemmKey, GemmPlan> plans;
  GemmAlgorithms* algorithms = nullptr;
  void* factors = nullptr;  // rounded to 16 bits, of the product that runs
  std::size_t factor_bytes = 0;
};

// The plan of a product of which no extent is 0, made if it is not there. Null, and the error noted, if cuBLASLt has
// none, or if it would have to be made while work is recorded. It is good until the next call.
const GemmPlan* PlanOf(Stream::Native& native, const Product& product);

// The product as planned, with its epilogue.
void RunPlan(Stream::Native& native, const GemmPlan& plan, const Product& product);

// The epilogue as passes of their own over C, which holds the product.
cudaError_t RunEpilogue(const Stream::Native& native, const Product& product);

}  // namespace tarn::kernels

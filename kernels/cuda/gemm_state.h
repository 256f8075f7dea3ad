// What a stream keeps of its matrix products, and how one is planned. Internal to kernels/cuda.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

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

// When a plan's algorithm is to be measured: what comes once only, as the last batch of a file does, is not worth it.
enum class Search : std::uint8_t {
  kOver,              // it has been, or nobody asks for it
  kWhenItComesAgain,  // or is about to be recorded
  kNow,
};

// How a product is computed. The layouts are of the product's a, b and c; cuBLASLt gets b first.
struct GemmPlan {
  LtOperation operation;
  LtLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  bool fused = false;  // the epilogue
  // Of what cuBLASLt expects, and not measured; then `others` are what it expects to be slower, the fastest last.
  bool expected = false;
  std::vector<cublasLtMatmulAlgo_t> others;
  // Where the second factor was when the product came first, and the version of the stream's memory then.
  struct Met {
    const void* b = nullptr;
    std::uint64_t memory_version = 0;
  };
  Search search = Search::kOver;
  Met met;
};

struct GemmState {
  explicit GemmState(Stream::Native* of) : stream(*of) {}
  ~GemmState() {
    if (factors != nullptr) stream.Release(factors);
  }
  GemmState(const GemmState&) = delete;
  GemmState& operator=(const GemmState&) = delete;

  static constexpr std::size_t kPlansMax = 1024;  // then all are made again

  Stream::Native& stream;
  std::map<GemmKey, GemmPlan> plans;
  GemmAlgorithms* algorithms = nullptr;
  void* factors = nullptr;  // rounded to 16 bits, of the product that runs
  std::size_t factor_bytes = 0;
};

// The plan of a product of which no extent is 0, made if it is not there; `b` is where its second factor was before it
// was rounded. Null, and the error noted, if cuBLASLt has none, or if it would have to be made or measured while work
// is recorded. It is good until the next call.
GemmPlan* PlanOf(Stream::Native& native, const Product& product, const void* b);

// The product as planned, with its epilogue. A plan that cuBLASLt refuses to run is replaced by the next that it
// expects to run; where there is none, it is dropped and the error noted.
void RunPlan(Stream::Native& native, GemmPlan* plan, const Product& product);

// The epilogue as passes of their own over C, which holds the product.
cudaError_t RunEpilogue(const Stream::Native& native, const Product& product);

}  // namespace tarn::kernels
